// How the blocks of a prompt that lie in host memory are loaded beside sequences that decode.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>

#include "sched/scheduler_testing.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;

class Loads : public Schedule {
 protected:
  // The ten whole blocks of kPrompt lie in host memory, and sequence 3 decodes.
  void begin(const Policy& policy) {
    Limits l = limits(4, 128, 120);
    l.policy = policy;
    cache_ = std::make_unique<kv::CacheIndex>(
        26, kBlock, true, 0, kv::TierConfig{.host_blocks = 40}, kv::BlockSources{});
    scheduler_ = std::make_unique<Scheduler>(l, *cache_);
    run(again(1));
    run(request(2, 100, 1));  // displaces them
    add(request(3, 4, 30));
    step();
  }
  void run(NewSequence s) {
    add(std::move(s));
    while (!scheduler_->idle()) step();
  }
  static NewSequence again(SeqId id) {
    NewSequence s = request(5, 42, 1);
    s.id = id;
    return s;
  }
  // Plans and commits steps until sequence 4 has rows; returns the numbers of loads of each.
  std::vector<size_t> loads_until_rows() {
    std::vector<size_t> loads;
    for (int i = 0; i < 20; ++i) {
      const StepPlan plan = this->plan();
      commit();
      loads.push_back(plan.loads.size());
      for (const BlockCopy& load : plan.loads) loaded_.insert(load.block);
      opened_ += plan.opened.size();
      last_ = rows(plan);
      if (last_.size() > 1) break;
      EXPECT_EQ(std::get<0>(last_.at(0)), 3u) << "who decodes has a row in every step";
    }
    return loads;
  }
  std::set<BlockId> loaded_;
  size_t opened_ = 0;
  std::vector<Rows> last_;
};

TEST_F(Loads, AreSpreadOverStepsAsThePolicySays) {
  begin({.max_loads = 3});
  add(again(4));
  EXPECT_THAT(loads_until_rows(), ElementsAre(3, 3, 3, 1, 0));
  EXPECT_EQ(loaded_.size(), 10u);
  EXPECT_EQ(opened_, 1u);
  EXPECT_THAT(last_, testing::UnorderedElementsAre(testing::FieldsAre(3u, testing::_, 1),
                                                   testing::FieldsAre(4u, 40, 2)));
}

TEST_F(Loads, TakeAboutAsLongAsTheDecodesOfAStep) {
  begin({.cost = StepCost({{1, 10e-3}, {100, 10e-3}, {200, 20e-3}}, {}), .step_seconds = 20e-3});
  cache_->tiers().measured(/*rows=*/1, /*copies=*/1, /*seconds=*/0.01, /*copy_seconds=*/2e-3);
  add(again(4));
  EXPECT_THAT(loads_until_rows(), ElementsAre(5, 5, 0)) << "2 ms each beside ten";
}

TEST_F(Loads, DisturbNobodyWhereNobodyDecodes) {
  begin({.max_loads = 3});
  scheduler_->cancel(3);
  add(again(4));
  const StepPlan plan = this->plan();
  commit();
  EXPECT_EQ(plan.loads.size(), 10u);
  EXPECT_THAT(rows(plan), ElementsAre(testing::FieldsAre(4u, 40, 2)));
}

TEST_F(Loads, EndWithTheirSequence) {
  begin({.max_loads = 3});
  add(again(4));
  EXPECT_EQ(plan().loads.size(), 3u);
  scheduler_->cancel(4);
  commit();
  EXPECT_TRUE(plan().loads.empty());
  commit();
  add(again(6));
  EXPECT_THAT(loads_until_rows(), ElementsAre(3, 3, 1, 0)) << "three blocks are on the device";
}

// A sequence that finds blocks which this plan loads for another one has no rows in it either.
TEST_F(Loads, HaveNoRowsInTheirPlanThatOthersWouldWaitWith) {
  begin({});
  add(again(4));
  add(again(6));
  const StepPlan plan = this->plan();
  commit();
  EXPECT_EQ(plan.loads.size(), 10u);
  EXPECT_THAT(rows(plan), ElementsAre(testing::FieldsAre(3u, testing::_, 1)));
  EXPECT_THAT(step(), ElementsAre(testing::FieldsAre(3u, testing::_, 1),
                                  testing::FieldsAre(4u, 40, 2), testing::FieldsAre(6u, 40, 2)));
}

TEST_F(Loads, RunBesideTheRowsOfAPromptThatStartsToo) {
  begin({});
  scheduler_->cancel(3);
  add(request(6, 30, 1));
  add(again(4));
  const StepPlan plan = this->plan();
  commit();
  EXPECT_EQ(plan.loads.size(), 10u);
  EXPECT_THAT(rows(plan), ElementsAre(testing::FieldsAre(6u, 0, 30)));
  EXPECT_THAT(step(), ElementsAre(testing::FieldsAre(4u, 40, 2)));
}

TEST_F(Loads, AreDoneOnceForSequencesThatBeginAlike) {
  begin({.max_loads = 3});
  add(again(4));
  plan();
  commit();
  add(again(6));
  size_t loads = 3;
  for (int i = 0; i < 8; ++i) {
    loads += plan().loads.size();
    commit();
  }
  EXPECT_EQ(loads, 10u);
  EXPECT_EQ(scheduler_->stats().tiers.loads, 10u);
}

// With two steps in flight, little memory, and prompts that come again.
class RandomLoads : public Schedule {
 protected:
  void begin(uint64_t seed) {
    rng_.seed(seed);
    Limits l = limits(3 + below(3), 24 + below(60), 64);
    l.policy.max_loads = below(4);
    cache_ = std::make_unique<kv::CacheIndex>(18 + below(12), kBlock, true, seed,
                                              kv::TierConfig{.host_blocks = 10 + below(30)},
                                              kv::BlockSources{});
    scheduler_ = std::make_unique<Scheduler>(l, *cache_);
  }
  int below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  void act(SeqId id) {
    if (below(3) == 0) {
      NewSequence s = request(1 + static_cast<SeqId>(below(4)), 8 + below(40), 1 + below(16));
      s.id = id;
      add(std::move(s));
    }
    if (below(12) == 0) scheduler_->cancel(id - static_cast<SeqId>(below(5)));
  }
  // Rows that wait for a load of their own plan are in it only where all are of sequences that have
  // had none.
  void check(const StepPlan& plan) {
    std::set<BlockId> loaded;
    for (const BlockCopy& load : plan.loads)
      ASSERT_TRUE(loaded.insert(load.block).second) << "a block is loaded twice";
    const bool waits =
        std::ranges::any_of(plan.pages, [&](BlockId page) { return loaded.contains(page); });
    waits_ += waits;
    beside_ += !waits && !loaded.empty() && !plan.spans.empty();
    ASSERT_TRUE(!waits || plan.opened.size() == plan.spans.size()) << "step " << plan.step;
  }
  std::mt19937_64 rng_;
  int waits_ = 0, beside_ = 0;
};

TEST_F(RandomLoads, LetNoRowsWaitThatNeedNot) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    begin(seed);
    for (SeqId id = 100; id < 220; ++id) {
      act(id);
      check(plan());
      if (HasFatalFailure()) return;
      if (flying_.size() == 2) commit();
    }
    while (!flying_.empty()) commit();
    scheduler_->cancel_all();
    while (!scheduler_->idle()) step();
  }
  EXPECT_GT(beside_, 300);
  EXPECT_GT(waits_, 100);
}

}  // namespace
}  // namespace skiff::sched
