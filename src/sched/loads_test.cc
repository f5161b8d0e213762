// How the blocks of a prompt that lie in host memory are loaded beside sequences that decode.
#include <gmock/gmock.h>

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
  EXPECT_THAT(loads_until_rows(), ElementsAre(3, 3, 3, 1));
  EXPECT_EQ(loaded_.size(), 10u);
  EXPECT_EQ(opened_, 1u);
  EXPECT_THAT(last_, testing::UnorderedElementsAre(testing::FieldsAre(3u, testing::_, 1),
                                                   testing::FieldsAre(4u, 40, 2)));
}

TEST_F(Loads, KeepToTheAimOfAStep) {
  begin({.cost = StepCost({{1, 10e-3}, {100, 10e-3}, {200, 20e-3}}, {}), .step_seconds = 20e-3});
  cache_->tiers().measured(/*rows=*/1, /*copies=*/1, /*seconds=*/0.01, /*copy_seconds=*/2e-3);
  add(again(4));
  EXPECT_THAT(loads_until_rows(), ElementsAre(5, 5)) << "ten of the 20 ms, 2 ms each";
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
  EXPECT_EQ(loads_until_rows().size(), 3u) << "three blocks are on the device; 3, 3 and 1 follow";
}

}  // namespace
}  // namespace skiff::sched
