// Tests which steps are timed and that a step without numbers is noticed; times themselves are
// those of StepResult.
#include "engine/step_timer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/device_runner.h"
#include "engine/model_testing.h"
#include "engine/step_costs.h"
#include "ops/cpu/backend.h"

namespace skiff::engine {
namespace {

constexpr sched::Limits kLimits{
    .max_seqs = 6, .max_rows = 48, .max_context = 40, .max_logit_rows = 6, .vocab = 97};
constexpr StepTimer::Room kRoom{.block_size = 8, .blocks = 20};

class StepTimerTest : public testing::Test {
 protected:
  StepTimerTest()
      : folder_("step_timer"),
        model_(model::load_model(folder_.path(), model::read_model_config(folder_.path()),
                                 {.precision = uniform_precision(DType::kF32),
                                  .format = model::LoadFormat::kDummy,
                                  .progress = {}},
                                 ops_)),
        kv_(model_.spec, kRoom.blocks, kRoom.block_size, {.dtype = DType::kF32}, ops_.device()),
        executor_(model_, ops_, mesh_, kv_.layers(), {.act = DType::kF32, .limits = kLimits}),
        timer_(runner_, kLimits, kRoom, /*context=*/17) {}

  DummyFolder folder_;
  cpu::CpuOps ops_{{.threads = 2}};
  model::LoadedModel model_;
  model::KvCache kv_;
  comm::Mesh mesh_ = comm::make_solo_mesh();
  StepExecutor executor_;
  DeviceRunner runner_{executor_};
  StepTimer timer_;
};

TEST_F(StepTimerTest, StepsFitIntoLimitsAndBlocks) {
  EXPECT_FALSE(timer_.fits({}));
  EXPECT_TRUE(timer_.fits({.decodes = 6})) << "3 blocks each";
  EXPECT_FALSE(timer_.fits({.decodes = 7})) << "there are 6 slots";
  EXPECT_TRUE(timer_.fits({.decodes = 5, .prompt = 40}));
  EXPECT_FALSE(timer_.fits({.decodes = 6, .prompt = 1})) << "no slot for the prompt";
  EXPECT_TRUE(timer_.fits({.prompt = 48})) << "two prompts, since the context is 40";
  EXPECT_FALSE(timer_.fits({.prompt = 49})) << "there are 48 rows";
  StepTimer small(runner_, kLimits, {.block_size = 8, .blocks = 16}, 17);
  EXPECT_TRUE(small.fits({.decodes = 4, .prompt = 32}));
  EXPECT_FALSE(small.fits({.decodes = 4, .prompt = 33})) << "17 blocks";
}

TEST_F(StepTimerTest, EveryRepetitionTakesTime) {
  for (const StepShape shape : {StepShape{.decodes = 6},
                                {.prompt = 48},
                                {.decodes = 3, .prompt = 20},
                                {.decodes = 1},
                                {.prompt = 1}}) {
    for (const int repetitions : {1, 4}) {
      const std::vector<double> seconds = timer_.seconds(shape, repetitions);
      ASSERT_EQ(std::ssize(seconds), repetitions);
      for (const double s : seconds) EXPECT_GT(s, 0) << shape.decodes << " " << shape.prompt;
      const double least = timer_.least_alone(shape, repetitions);
      EXPECT_TRUE(least > 0 && std::isfinite(least)) << shape.decodes << " " << shape.prompt;
    }
  }
  EXPECT_GT(median(timer_.seconds({.prompt = 48}, 15)), median(timer_.seconds({.prompt = 1}, 15)));
}

TEST_F(StepTimerTest, AStepWithoutNumbersIsNoticed) {
  EXPECT_TRUE(timer_.is_finite({.decodes = 5, .prompt = 8}));
  *model_.weights.norm.weight.as<float>() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(timer_.is_finite({.decodes = 5, .prompt = 8}));
  EXPECT_FALSE(timer_.is_finite({.prompt = 8}));
}

TEST_F(StepTimerTest, WhatAStepCostsIsMeasuredWithinTheLimits) {
  Resolved resolved{.limits = kLimits};
  resolved.limits.policy.row_context = 700;
  const sched::StepCost cost = measure_step_cost(timer_, resolved, model_.spec);
  ASSERT_EQ(cost.points().size(), 2u) << "1 and 16 rows; there are 48 at most";
  EXPECT_EQ(cost.points()[1].rows, 16);
  EXPECT_EQ(cost.context().doubling, 700);
  EXPECT_GT(cost.context().seconds, 0);
  const std::string line = describe(cost, {.long_prompt = 77, .cost = {}, .step_seconds = 0.5});
  EXPECT_NE(line.find("aim at 500 ms, prompts above 77 tokens"), std::string::npos) << line;
}

TEST(Median, IsTheValueInTheMiddle) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 8, 3}), 3);
}

}  // namespace
}  // namespace skiff::engine
