// Tests how prompts are cut where it is known what a step costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/scheduler.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;

// (sequence, begin, count) of each span.
using Rows = std::tuple<SeqId, int, int>;

// 10 ms for any step, then 0.1 ms a row from 100 rows on.
StepCost plain_cost(StepCost::Context context = {}) {
  return StepCost({{1, 10e-3}, {100, 10e-3}, {200, 20e-3}, {2000, 200e-3}}, context);
}

class TimedSteps : public testing::Test {
 protected:
  void start(Policy policy, int max_rows = 2000) {
    cache_ = std::make_unique<kv::CacheIndex>(1000, 16, /*share_prefixes=*/false);
    scheduler_ = std::make_unique<Scheduler>(Limits{.max_seqs = 16,
                                                    .max_rows = max_rows,
                                                    .max_context = 4000,
                                                    .max_logit_rows = 16,
                                                    .policy = std::move(policy)},
                                             *cache_);
  }
  ~TimedSteps() override {
    if (!scheduler_) return;
    scheduler_->cancel_all();
    while (!scheduler_->idle()) step();
  }
  void add(SeqId id, int prompt, int max_tokens = 100) {
    NewSequence s{.id = id, .prompt = std::vector<Token>(static_cast<size_t>(prompt), 5)};
    s.stop.max_tokens = max_tokens;
    ASSERT_TRUE(scheduler_->add(std::move(s)));
  }
  std::vector<Rows> step() {
    const StepPlan plan = scheduler_->plan();
    std::vector<Rows> rows;
    StepResult result{.step = plan.step};
    for (const Span& s : plan.spans) {
      rows.emplace_back(s.seq, s.begin, s.count);
      result.tokens.push_back(s.sample ? std::vector<Token>{7} : std::vector<Token>{});
      result.logprobs.emplace_back(result.tokens.back().size());
      result.prompt_logprobs.emplace_back();
    }
    if (!plan.empty()) scheduler_->commit(plan, result);
    return rows;
  }

  std::unique_ptr<kv::CacheIndex> cache_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(TimedSteps, AStepEndsAtItsAim) {
  start({.long_prompt = 5000, .cost = plain_cost(), .step_seconds = 0.03});
  add(1, 50);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 50}));
  add(2, 1000);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 50, 1}, Rows{2, 0, 255})) << "256 rows, a whole tile";
  EXPECT_THAT(step(), ElementsAre(Rows{1, 51, 1}, Rows{2, 255, 255}));
}

TEST_F(TimedSteps, PromptsShareAStep) {
  start({.long_prompt = 5000, .cost = plain_cost(), .step_seconds = 0.03});
  for (SeqId id = 1; id <= 3; ++id) add(id, 120);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 120}, Rows{2, 0, 120})) << "16 rows are no chunk";
  EXPECT_THAT(step(), ElementsAre(Rows{1, 120, 1}, Rows{2, 120, 1}, Rows{3, 0, 120}));
  add(4, 200);
  add(5, 300);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 121, 1}, Rows{2, 121, 1}, Rows{3, 120, 1},
                                  Rows{4, 0, 200}, Rows{5, 0, 53}))
      << "the beginning of a prompt fills the step";
}

TEST_F(TimedSteps, RowsFarIntoAPromptTakeLonger) {
  start({.long_prompt = 5000,
         .cost = plain_cost({.doubling = 1000, .seconds = 0}),
         .step_seconds = 0.1});
  add(1, 3000);
  std::vector<int> counts;
  for (int begin = 0; begin < 3000;) {
    const auto rows = step();
    counts.push_back(std::get<2>(rows.at(0)));
    begin += counts.back();
  }
  ASSERT_GE(counts.size(), 4u);
  EXPECT_GT(counts.front(), 500);
  EXPECT_LT(counts[counts.size() - 2], counts.front() / 2) << "a row at 2000 costs three times";
}

TEST_F(TimedSteps, DecodesThatTakeLongLeavePromptsAShare) {
  start({.long_prompt = 5000,
         .cost = plain_cost({.doubling = 0, .seconds = 1e-4}),
         .step_seconds = 0.02});
  add(1, 1500);
  while (std::get<2>(step().at(0)) > 1) continue;
  add(2, 400);  // beside a decode that takes 160 ms
  const auto rows = step();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_GE(std::get<2>(rows[1]), 128) << "half of what the decode takes";
}

TEST_F(TimedSteps, AnImpossibleAimStillGetsSomewhere) {
  start({.long_prompt = 5000, .cost = plain_cost(), .step_seconds = 1e-6});
  add(1, 100);
  add(2, 20);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 32}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 32, 32}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 64, 32}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 96, 4}));
}

TEST_F(TimedSteps, APromptAloneGetsALongStep) {
  start({.long_prompt = 5000,
         .cost = StepCost({{1, 5e-3}, {512, 15e-3}, {1024, 22e-3}, {2048, 40e-3}}, {})});
  add(1, 2000);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 2000}));
  add(2, 2000);
  const auto beside = step();
  ASSERT_EQ(beside.size(), 2u);
  EXPECT_THAT(beside, ElementsAre(Rows{1, 2000, 1}, Rows{2, 0, 1023}));
}

// 1 ms and 25 us a row, so that 20 ms, the aim beside a decode, suffice for 760 rows.
StepCost steep_cost() {
  return StepCost({{1, 1e-3}, {400, 11e-3}, {800, 21e-3}, {4000, 101e-3}}, {});
}

// A prompt of 1,000 rows takes 26 ms, and 30 are allowed to finish one.
TEST_F(TimedSteps, AStepTakesLongerToFinishAPrompt) {
  start({.long_prompt = 5000, .cost = steep_cost()});
  add(1, 50);
  step();
  add(2, 1000);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 50, 1}, Rows{2, 0, 1000}));
  add(3, 1500);
  const auto cut = step();
  ASSERT_EQ(cut.size(), 3u);
  EXPECT_LT(std::get<2>(cut[2]), 800) << "too long for that";
}

TEST_F(TimedSteps, AnAimThatWasAskedForIsKept) {
  start({.long_prompt = 5000, .cost = steep_cost(), .step_seconds = 0.02});
  add(1, 50);
  step();
  add(2, 1000);
  const auto rows = step();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_LT(std::get<2>(rows[1]), 800);
}

// Without an aim the limits in rows hold.
TEST_F(TimedSteps, InfinityIsNoAim) {
  start({.long_prompt = 5000,
         .cost = plain_cost(),
         .step_seconds = std::numeric_limits<double>::infinity()});
  add(1, 2000);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 2000}));
}

TEST_F(TimedSteps, ShortPromptsGoBeforeTheNextRowsOfALongOne) {
  start({.long_prompt = 2500, .cost = plain_cost(), .step_seconds = 0.03});
  add(1, 3000);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 256}));
  add(2, 150);
  add(3, 300);
  const auto rows = step();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], (Rows{2, 0, 150}));
  EXPECT_EQ(std::get<0>(rows[2]), 1u) << "the long one keeps a share";
  EXPECT_GE(std::get<2>(rows[2]), 32);
  int total = 0;
  for (const auto& [id, begin, count] : rows) total += count;
  EXPECT_LE(total, 300);
}

// 1 ms and 5 us a row: steps are full long before their aim.
TEST_F(TimedSteps, ShortPromptsLeaveRowsForALongOne) {
  start(
      {.long_prompt = 2500, .cost = StepCost({{1, 1e-3}, {2000, 11e-3}}, {}), .step_seconds = 0.03},
      /*max_rows=*/200);
  add(1, 3000);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 200}));
  add(2, 1000);
  EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 150}, Rows{1, 200, 50}));
  EXPECT_THAT(step(), ElementsAre(Rows{2, 150, 150}, Rows{1, 250, 50}));
}

// Behind 100 rows of the short one 28 more end the step at a good place.
TEST_F(TimedSteps, ALongPromptBehindShortOnesGetsAChunkHoweverShortTheAim) {
  start({.long_prompt = 2500, .cost = plain_cost(), .step_seconds = 0.015});
  add(1, 3000);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 128}));
  add(2, 1000);
  EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 100}, Rows{1, 128, 32}));
}

}  // namespace
}  // namespace skiff::sched
