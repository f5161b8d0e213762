// Whether tokens are drafted, on machines whose steps take what the test says.
#include "engine/draft_pace.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace skiff::engine {
namespace {

// What a step with drafts and one without gives each sequence, and how long they take.
struct Machine {
  double tokens_with = 1.9, seconds_with = 1.5e-3, seconds_without = 1e-3;
  double gain() const { return tokens_with * seconds_without / seconds_with; }
};

// Sequences that decode on such a machine.
class Decoding {
 public:
  explicit Decoding(DraftPace pace, uint64_t seed = 1) : pace_(std::move(pace)), rng_(seed) {}

  // Computes steps; returns how many of them drafted.
  int steps(int count, int sequences, const Machine& machine, double noise = 0) {
    int drafted = 0;
    for (int i = 0; i < count; ++i) {
      StepPlan plan{.step = ++step_, .page_start = {0}};
      for (int s = 0; s < sequences; ++s)
        plan.spans.push_back({.seq = SeqId(s), .slot = s, .begin = 9, .count = 1, .sample = true});
      plan.drafts = pace_.drafts(plan);
      StepResult result{.step = step_};
      for (int s = 0; s < sequences; ++s) {
        const bool more = had_drafts_ && (rng_() % 1000) < 1000 * (machine.tokens_with - 1);
        result.tokens.push_back(std::vector<Token>(more ? 2 : 1, 5));
        said_ += more ? 2 : 1;
      }
      const double bare = plan.drafts ? machine.seconds_with : machine.seconds_without;
      const double took = bare * (1 + noise * static_cast<double>(rng_() % 1000) / 1000) *
                          (rng_() % 50 ? 1 : 1 + 20 * noise);
      seconds_ += took;
      pace_.committed(plan, result, took);
      had_drafts_ = plan.drafts;
      drafted += plan.drafts;
    }
    return drafted;
  }
  double rate() const { return said_ / seconds_; }

 private:
  DraftPace pace_;
  std::mt19937_64 rng_;
  uint64_t step_ = 0;
  bool had_drafts_ = false;
  double said_ = 0, seconds_ = 0;
};

TEST(DraftPace, DraftsWithoutWeightsAreNotWeighed) {
  Decoding decoding{DraftPace()};
  EXPECT_EQ(decoding.steps(500, 3, {.tokens_with = 1, .seconds_with = 1}), 500);
}

TEST(DraftPace, DraftsThatPayStay) {
  Decoding decoding(DraftPace(true));
  EXPECT_GT(decoding.steps(2000, 1, {}), 1950);
}

TEST(DraftPace, DraftsThatDoNotPayEnd) {
  const Machine slow{.tokens_with = 1.9, .seconds_with = 3e-3};
  Decoding decoding(DraftPace(true));
  decoding.steps(20, 1, slow);
  EXPECT_EQ(decoding.steps(50, 1, slow), 0) << "a trial is long enough to tell";
  EXPECT_LT(decoding.steps(10000, 1, slow), 60);
}

// Whatever drafting costs and saves, and however much times vary: in the long run the loss is less
// than three of a hundred, and most of a gain is there.
TEST(DraftPace, NeverMuchSlower) {
  for (const double tokens : {1.0, 1.3, 1.97})
    for (const double seconds : {1.05e-3, 1.2e-3, 1.9e-3, 2.5e-3, 5e-3})
      for (const double noise : {0., 0.3}) {
        const Machine machine{.tokens_with = tokens, .seconds_with = seconds};
        SCOPED_TRACE(testing::Message()
                     << tokens << " tokens in " << seconds << ", noise " << noise);
        Decoding weighed(DraftPace(true)), never(DraftPace(true));
        Machine same = machine;
        same.tokens_with = 1, same.seconds_with = same.seconds_without;
        weighed.steps(20000, 2, machine, noise);
        never.steps(20000, 2, same, noise);
        EXPECT_GT(weighed.rate(), 0.97 * never.rate());
        const double gain = machine.gain() > 1.2 ? 0.95 * machine.gain() : 0;
        EXPECT_GT(weighed.rate(), gain * never.rate());
      }
}

// A text whose drafts are wrong is noticed before the next trial would be due.
TEST(DraftPace, DraftsThatGetWorseAreTriedAnew) {
  Decoding decoding(DraftPace(true));
  decoding.steps(1000, 1, {});
  const Machine wrong{.tokens_with = 1.1};
  EXPECT_LT(decoding.steps(100, 1, wrong), 50);
}

TEST(DraftPace, DraftsThatGetBetterAreFound) {
  Decoding decoding(DraftPace(true));
  decoding.steps(300, 1, {.tokens_with = 1.1});
  decoding.steps(4000, 1, {});
  EXPECT_GT(decoding.steps(1000, 1, {}), 850);
}

// What pays for one sequence need not pay for eight.
TEST(DraftPace, EachSizeOfBatchIsWeighed) {
  const Machine alone{}, together{.seconds_with = 2.5e-3};
  Decoding decoding(DraftPace(true));
  for (int i = 0; i < 10; ++i) {
    decoding.steps(100, 1, alone);
    decoding.steps(100, 8, together);
  }
  EXPECT_GT(decoding.steps(100, 1, alone), 90);
  EXPECT_LT(decoding.steps(100, 8, together), 10);
  EXPECT_LT(decoding.steps(100, 7, together), 20) << "as many as eight";
}

// Steps of many sequences, of which now and then one ends or begins.
TEST(DraftPace, BatchesThatChangeAreWeighed) {
  const Machine slow{.seconds_with = 2.5e-3};
  Decoding decoding(DraftPace(true));
  std::mt19937_64 rng(3);
  for (int i = 0; i < 300; ++i) decoding.steps(4, 60 + static_cast<int>(rng() % 5), slow);
  int drafted = 0;
  for (int i = 0; i < 100; ++i)
    drafted += decoding.steps(4, 60 + static_cast<int>(rng() % 5), slow);
  EXPECT_LT(drafted, 20);
}

}  // namespace
}  // namespace skiff::engine
