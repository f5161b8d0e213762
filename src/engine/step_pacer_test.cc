#include "engine/step_pacer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/seconds.h"

namespace skiff::engine {
namespace {

// A device that runs one step after the other, and a host that plans as the pacer says. Planning
// and launching a step takes the host `host` seconds.
class Machine {
 public:
  Machine(sched::StepCost cost, double host) : pacer_(std::move(cost)), host_(host) {}

  // Launches a step of `rows` rows, which takes `takes` seconds, as the pacer says, and waits for
  // the step before it. Returns the share of that step that was over when planning began.
  double step(int rows, double takes) {
    const double planned = std::max(now_, seconds(pacer_.plan_at() - StepPacer::Time{}));
    const double share = before_ > 0 ? (planned - (free_at_ - before_)) / before_ : 0;
    now_ = planned + host_;
    idle_ += std::max(0.0, now_ - free_at_) * (free_at_ > 0);
    pacer_.launched(plan_of(rows), at(planned), at(now_));
    const double wait_begin = now_, end = free_at_;
    free_at_ = std::max(free_at_, now_) + takes;
    if (before_ > 0) {
      now_ = std::max(now_, end);
      pacer_.ended(at(wait_begin), at(now_));
    }
    before_ = takes;
    return share;
  }
  double idle() const { return idle_; }
  double now() const { return now_; }

 private:
  static StepPacer::Time at(double time) {
    return StepPacer::Time{} + std::chrono::duration_cast<StepPacer::Time::duration>(
                                   std::chrono::duration<double>(time));
  }
  static StepPlan plan_of(int rows) {
    StepPlan plan;
    for (int i = 0; i < rows; ++i) plan.spans.push_back({.slot = i, .count = 1, .sample = true});
    plan.tokens.resize(static_cast<size_t>(rows));
    return plan;
  }

  StepPacer pacer_;
  const double host_;
  double now_ = 1, free_at_ = 0, before_ = 0, idle_ = 0;
};

sched::StepCost curve() { return sched::StepCost({{1, 5e-3}, {100, 10e-3}, {200, 20e-3}}, {}); }

// A replica that decodes while another computes a prompt plans as late as that one does.
TEST(StepPacer, AStepTakesAsLongAsTheOneBesideIt) {
  const auto plan_at = [](int own, int beside) {
    StepPacer pacer(curve());
    const StepPacer::Time begin{std::chrono::seconds(1)};
    StepPlan plan;
    plan.tokens.resize(static_cast<size_t>(own));
    plan.spans.push_back({.count = own});
    pacer.launched(plan, begin, begin);
    pacer.beside(beside);
    return seconds(pacer.plan_at() - begin);
  };
  EXPECT_GT(plan_at(200, 0), 1.5 * plan_at(100, 0));
  EXPECT_EQ(plan_at(1, 200), plan_at(200, 0));
  EXPECT_EQ(plan_at(200, 100), plan_at(200, 0));
  StepPacer without;
  without.beside(100);
  EXPECT_EQ(without.plan_at(), StepPacer::Time{});
}

TEST(StepPacer, PlansAtOnceWithoutACurveOrAStep) {
  EXPECT_EQ(StepPacer().plan_at(), StepPacer::Time{});
  EXPECT_EQ(StepPacer(curve()).plan_at(), StepPacer::Time{});
  Machine machine(sched::StepCost(), 1e-4);
  for (int i = 0; i < 20; ++i) EXPECT_LT(machine.step(1, 5e-3), 0.03);
}

TEST(StepPacer, PlansWhenFourFifthsOfAStepAreOver) {
  for (const double really : {0.5, 1.0, 1.8}) {
    Machine machine(curve(), 2e-4);
    double share = 0;
    for (int i = 0; i < 200; ++i) share = machine.step(100, really * 10e-3);
    EXPECT_NEAR(share, 1 - StepPacer::kLead, 0.01) << really;
    EXPECT_LT(machine.idle(), 1e-3) << really;
  }
}

TEST(StepPacer, LeavesTheHostTwiceItsTime) {
  Machine machine(curve(), 3e-3);
  double share = 0;
  for (int i = 0; i < 200; ++i) share = machine.step(100, 10e-3);
  EXPECT_NEAR(share, 1 - 2 * 0.3, 0.01);
  EXPECT_LT(machine.idle(), 1e-6);
}

TEST(StepPacer, AHostSlowerThanTheDevicePlansAtOnce) {
  Machine machine(curve(), 12e-3);
  for (int i = 0; i < 100; ++i) machine.step(100, 10e-3);
  EXPECT_NEAR(machine.now(), 1 + 100 * 12e-3, 12e-3) << "the host never waits to plan";
}

// Steps whose time varies around the curve, and then falls to a third for good.
TEST(StepPacer, TheDeviceIsHardlyEverIdle) {
  std::mt19937_64 rng(3);
  Machine machine(curve(), 3e-4);
  double busy = 0;
  for (int i = 0; i < 4000; ++i) {
    const int rows = 1 + static_cast<int>(rng() % 200);
    const double noise = 0.93 + 0.14 * static_cast<double>(rng() % 1000) / 1000;
    const double takes = curve().seconds(rows) * noise * (i < 2000 ? 1 : 0.33);
    busy += takes;
    machine.step(rows, takes);
  }
  EXPECT_LT(machine.idle(), 2e-3 * busy);
}

TEST(StepPacer, StepsWithoutRowsAreNoMeasure) {
  StepPacer pacer(curve());
  const StepPacer::Time start{std::chrono::seconds(1)};
  StepPlan saves;
  saves.saves.push_back({});
  pacer.launched(saves, start, start);
  EXPECT_EQ(pacer.plan_at(), StepPacer::Time{}) << "its time is not known";
  pacer.ended(start, start + std::chrono::seconds(9));
  EXPECT_EQ(pacer.plan_at(), StepPacer::Time{});
}

}  // namespace
}  // namespace skiff::engine
