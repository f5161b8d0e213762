// One large prompt in a step, as on a server that computes prompts for others.
#include <gmock/gmock.h>

#include "sched/scheduler_testing.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;

class LargePrompts : public Schedule {
 protected:
  void begin(int rows, Policy policy, bool share = false) {
    Limits l = limits(8, rows, 12000);
    l.policy = std::move(policy);
    start(l, 8000, share);
  }
  void prompt(SeqId id, int tokens) { add(request(id, tokens, 1)); }
};

TEST_F(LargePrompts, FollowEachOtherInTheirOrder) {
  begin(100, {.max_large = 1, .large_prompt = 20});
  for (const auto& [id, tokens] :
       {std::pair<SeqId, int>{1, 40}, {2, 30}, {3, 10}, {4, 25}, {5, 20}})
    prompt(id, tokens);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 40}, Rows{3, 0, 10}, Rows{5, 0, 20}));
  EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 30}));
  EXPECT_THAT(step(), ElementsAre(Rows{4, 0, 25}));
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(LargePrompts, AreMoreThanOneWhereThePolicySaysSo) {
  begin(100, {.max_large = 2, .large_prompt = 20});
  for (SeqId id = 1; id <= 3; ++id) prompt(id, 30);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 30}, Rows{2, 0, 30}));
  EXPECT_THAT(step(), ElementsAre(Rows{3, 0, 30}));
}

// One that takes several steps is large in each of them, however little of it is left.
TEST_F(LargePrompts, HaveTheLastStepForThemselvesToo) {
  begin(100, {.max_large = 1, .large_prompt = 20});
  prompt(1, 110);
  prompt(2, 50);
  prompt(3, 15);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 100}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 100, 10}, Rows{3, 0, 15}));
  EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 50}));
}

// What counts are the rows that are to be computed.
TEST_F(LargePrompts, AreNotLargeForWhatIsCached) {
  begin(100, {.max_large = 1, .large_prompt = 20}, /*share=*/true);
  prompt(1, 42);
  step();
  NewSequence again = request(1, 42, 1);
  again.id = 2;
  prompt(3, 30);
  add(again);
  EXPECT_THAT(step(), ElementsAre(Rows{3, 0, 30}, Rows{2, 40, 2}));
}

// Long ones have a share of each step of their own, as everywhere, and delay no large one.
TEST_F(LargePrompts, GoBesideALongOne) {
  begin(100, {.long_prompt = 200, .long_chunk = 40, .max_large = 1, .large_prompt = 20});
  prompt(1, 300);
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 40}));
  prompt(2, 30);
  prompt(3, 30);
  EXPECT_THAT(step(), ElementsAre(FieldsAre(1u, 40, testing::_), Rows{2, 0, 30}));
  EXPECT_THAT(step(), ElementsAre(FieldsAre(1u, testing::_, testing::_), Rows{3, 0, 30}));
  scheduler_->cancel(1);
}

// Steps as an H200 takes them for a model with experts: 90 % of the best rate from 1,536 rows on,
// and 97 % from 4,096 on.
StepCost of_experts() {
  return StepCost({{1, 2.2e-3},
                   {64, 6e-3},
                   {256, 10e-3},
                   {512, 13.5e-3},
                   {1024, 19e-3},
                   {1536, 25e-3},
                   {2048, 32e-3},
                   {4096, 60e-3},
                   {8192, 118e-3}},
                  {});
}

TEST_F(LargePrompts, AreWholeStepsWhereNothingDecodes) {
  for (const bool prefills : {false, true}) {
    Policy policy{.cost = of_experts()};
    begin(8192, prefills ? prefill_policy(policy) : policy);
    for (SeqId id = 1; id <= 3; ++id) prompt(id, 4096);
    prompt(4, 300);
    const std::vector<Rows> first = step();  // short prompts go first
    if (prefills) {
      EXPECT_THAT(first, ElementsAre(Rows{4, 0, 300}, Rows{1, 0, 4096}));
      EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 4096}));
    } else {
      EXPECT_LT(std::get<2>(first.at(1)), 2048) << "cut for the sake of others that decode";
    }
    scheduler_->cancel_all();
    while (!scheduler_->idle()) step();
  }
}

}  // namespace
}  // namespace skiff::sched
