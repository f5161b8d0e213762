#include "engine/forced_drafts.h"

#include <gtest/gtest.h>

namespace skiff::engine {
namespace {

TEST(ForcedDrafts, AreKeptAtTheirRate) {
  for (const double rate : {0., 0.3, 0.8, 1.}) {
    constexpr int kSpans = 20000;
    double first = 0, both = 0;
    for (int i = 0; i < kSpans; ++i) {
      const Span span{.seq = SeqId(i % 7), .count = 3, .draft = 2, .sample = true};
      const auto step = static_cast<uint64_t>(i / 7);
      const int kept = forced_kept(rate, span, step);
      EXPECT_EQ(kept, forced_kept(rate, span, step));
      first += kept > 0;
      both += kept > 1;
    }
    EXPECT_NEAR(first / kSpans, rate, 0.02);
    EXPECT_NEAR(both / kSpans, rate * rate, 0.02);
  }
}

// Two drafts of which one is kept: the first row gives the draft, and what is behind the second
// never counts.
TEST(ForcedDrafts, TheDrawGivesThemWhateverItDraws) {
  StepPlan plan;
  LogitRows rows;
  plan.spans = {{.seq = 1, .count = 3, .draft = 2, .sample = true}};
  while (forced_kept(0.5, plan.spans[0], plan.step) != 1) ++plan.step;
  rows.drawn = {{.slot = 0},
                {.slot = 0, .depth = 1, .after = 0, .guess = 11},
                {.slot = 0, .depth = 2, .after = 1, .guess = 12}};
  rows.drawn_by = {0, 0, 0};
  rows.num_sampled = 1;
  std::vector<sample::DrawRow> drawn = rows.drawn;
  force_verdicts(0.5, plan, rows, drawn);
  EXPECT_EQ(drawn[0].instead, 11);
  EXPECT_EQ(drawn[1].instead, sample::kNoToken);
  EXPECT_EQ(drawn[1].guess, 11);
  EXPECT_LT(drawn[2].guess, 0) << "no token is equal to it";
}

}  // namespace
}  // namespace skiff::engine
