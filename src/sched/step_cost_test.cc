#include "sched/step_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sched/step_aim.h"

namespace skiff::sched {
namespace {

using Points = std::vector<StepCost::Point>;

// 4 ms for up to 128 rows, then 20 us a row, with a cliff behind 1024 rows.
StepCost cliff() {
  return StepCost({{1, 4e-3},
                   {128, 4e-3},
                   {512, 12e-3},
                   {1024, 22e-3},
                   {1152, 32e-3},
                   {1536, 36e-3},
                   {2048, 41e-3}},
                  {});
}

TEST(StepCost, IsLinearBetweenPointsAndBeyond) {
  const StepCost cost({{200, 0.3}, {100, 0.2}, {400, 0.5}}, {});
  EXPECT_FALSE(StepCost().known());
  ASSERT_TRUE(cost.known());
  EXPECT_NEAR(cost.seconds(100), 0.2, 1e-12);
  EXPECT_NEAR(cost.seconds(1), 0.2, 1e-12) << "below the first it is level";
  EXPECT_NEAR(cost.seconds(150), 0.25, 1e-12);
  EXPECT_NEAR(cost.seconds(300), 0.4, 1e-12);
  EXPECT_NEAR(cost.seconds(1400), 1.5, 1e-12);
  EXPECT_NEAR(cost.best_rate(), 800, 1e-9);
  const StepCost one({{10, 0.1}}, {});
  EXPECT_NEAR(one.seconds(5), 0.1, 1e-12);
  EXPECT_NEAR(one.seconds(50), 0.5, 1e-12);
  EXPECT_EQ(one.rows_within(0.5), 50);
}

TEST(StepCost, MoreRowsNeverTakeLess) {
  const StepCost cost({{1, 0.2}, {8, 0.1}, {16, 0.3}}, {});
  EXPECT_NEAR(cost.seconds(1), 0.1, 1e-12);
  std::mt19937_64 rng(1);
  for (int i = 0; i < 200; ++i) {
    Points points;
    int rows = 0;
    for (int p = 1 + static_cast<int>(rng() % 9); p > 0; --p)
      points.push_back(
          {rows += 1 + static_cast<int>(rng() % 300), 1e-3 * static_cast<double>(1 + rng() % 50)});
    std::ranges::shuffle(points, rng);
    const StepCost random(points, {});
    for (int r = 1; r < rows + 400; r += 3)
      ASSERT_LE(random.seconds(r), random.seconds(r + 3) + 1e-12) << r;
  }
}

TEST(StepCost, RowsWithinIsTheInverse) {
  const StepCost cost = cliff();
  EXPECT_EQ(cost.rows_within(3.9e-3), 0);
  EXPECT_EQ(cost.rows_within(4e-3), 128) << "rows that cost nothing are taken along";
  for (const int rows : {200, 512, 700, 1024, 1100, 2048, 5000}) {
    EXPECT_EQ(cost.rows_within(cost.seconds(rows)), rows);
    EXPECT_EQ(cost.rows_within(cost.seconds(rows + 1) - 1e-8), rows);
  }
}

TEST(StepCost, AttentionGrowsWithTheContext) {
  const StepCost cost({{1, 1e-3}, {1000, 10e-3}}, {.doubling = 1000, .seconds = 1e-7});
  EXPECT_NEAR(cost.attention(0, 1000) - 1e-7 * 1000, 0.5 * 10e-3, 1e-9);
  EXPECT_NEAR(cost.attention(1000, 1), 1e-7 * 1001 + 1e-5, 1e-8);
  EXPECT_EQ(cliff().attention(1000, 100), 0) << "nothing is known of it";
  EXPECT_NEAR(prompt_point(2000, 30e-3, 1000).seconds, 15e-3, 1e-12);
  EXPECT_EQ(prompt_point(2000, 30e-3, 0).seconds, 30e-3);
}

TEST(StepCost, StepsEndWhereRowsAreCheap) {
  const StepCost cost = cliff();
  EXPECT_EQ(cost.best_end(1024), 1024);
  EXPECT_EQ(cost.best_end(1100), 1024) << "not behind the cliff";
  EXPECT_EQ(cost.best_end(1400), 1024);
  EXPECT_EQ(cost.best_end(2047), 1920) << "at a better rate again";
  EXPECT_EQ(cost.best_end(1600), 1024);
  EXPECT_EQ(cost.best_end(2048), 2048);
  EXPECT_EQ(cost.best_end(3000), 2944) << "a multiple of 128";
  EXPECT_EQ(cost.best_end(900), 896);
  EXPECT_EQ(cost.best_end(511), 384);
  EXPECT_EQ(cost.best_end(40), 32);
  for (int rows = 1; rows < 4000; ++rows) {
    const int end = cost.best_end(rows);
    ASSERT_TRUE(1 <= end && end <= rows) << rows;
  }
}

TEST(StepAim, IsTheShortestStepOfAGoodRate) {
  const StepCost cost = cliff();
  const double beside = step_aim(cost, 0, {});
  EXPECT_EQ(cost.best_end(cost.rows_within(beside)), 1024);
  EXPECT_EQ(step_aim(cost, 0.007, {.decodes = 9, .backlog = 100}), 0.007) << "asked is asked";
  // Beside many decodes a short step has few rows for prompts, so it is not at a good rate.
  EXPECT_GT(step_aim(cost, 0, {.decodes = 200, .attention = 6e-3}), beside + 6e-3);
  EXPECT_GT(step_aim(cost, 0, {.alone = true}), 0.043);
  EXPECT_EQ(step_aim(cost, 0, {.backlog = 4 * beside}), beside);
  EXPECT_NEAR(step_aim(cost, 0, {.backlog = 4 * 0.024}), 0.024, 1e-12);
  EXPECT_NEAR(step_aim(cost, 0, {.backlog = 0.4}), 0.025, 1e-12) << "a burst";
  EXPECT_NEAR(step_aim(cost, 0, {.backlog = 16 * 0.042}), 0.042, 1e-12) << "a queue";
  EXPECT_LT(step_aim(cost, 0, {.backlog = 1000}), 0.1);
}

// A fast device needs no short chunks, and a slow one cannot have steps of 50 ms.
TEST(StepAim, KeepsToBounds) {
  const StepCost fast({{1, 1e-5}, {1000, 1e-3}}, {}), slow({{1, 0.15}, {16, 0.2}, {512, 3}}, {});
  EXPECT_EQ(step_aim(fast, 0, {}), 0.02);
  EXPECT_GT(step_aim(slow, 0, {}), 0.15);
  EXPECT_LT(step_aim(slow, 0, {}), 1.7);
  EXPECT_GE(slow.rows_within(step_aim(slow, 0, {})), 16);
}

TEST(StepAim, MayBeExceededToFinishAPrompt) {
  EXPECT_EQ(finish_aim(0.007, 0.007), 0.007) << "asked is asked";
  EXPECT_EQ(finish_aim(0, 0.02), 0.03);
  EXPECT_EQ(finish_aim(0, 0.05), 0.05);
}

TEST(StepAim, ALongPromptTakesSeveralSteps) {
  const StepCost cost = cliff();
  EXPECT_EQ(long_prompt_for(cost, 0.012), 16 * 512);
  EXPECT_GE(long_prompt_for(cost, 0), 16 * 1024);
  EXPECT_EQ(long_prompt_for(cost, 1e-6), 512) << "at least";
}

}  // namespace
}  // namespace skiff::sched
