// What a step gives besides tokens, and how sequences end: stops, cancels, log-probabilities of
// prompts, pooled rows.
#include <gmock/gmock.h>

#include <algorithm>

#include "sched/scheduler_testing.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Schedule, StopTokensCountOnlyAfterMinTokens) {
  start(limits(1, 10));
  NewSequence s = request(1, 3);
  s.stop.tokens = {7};
  s.params.min_tokens = 2;
  add(s);
  const StepPlan& first = plan();
  EXPECT_THAT(first.opened.at(0).stop_tokens, ElementsAre(7));
  commit(7);
  step(7);
  EXPECT_FALSE(scheduler_->idle());
  step(7);
  EXPECT_THAT(endings(events_), ElementsAre(Finish::kStop));
  EXPECT_THAT(events_.at(0).tokens, ElementsAre(7));
}

TEST_F(Schedule, AStopWithAnotherStepInFlightDropsItsResult) {
  start(limits(1, 10));
  NewSequence s = request(1, 3);
  s.stop.tokens = {7};
  add(s);
  add(request(2, 3));
  plan();
  const StepPlan& second = plan();
  EXPECT_THAT(second.tokens, ElementsAre(kOnDevice));
  EXPECT_THAT(endings(commit(7)), ElementsAre(Finish::kStop));
  EXPECT_TRUE(plan().empty()) << "the slot is not free yet";
  EXPECT_THAT(commit(8), IsEmpty());
  flying_.clear();
  EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 3}));
}

TEST_F(Schedule, ACancelWhileInFlightIsHeardAtOnceAndFreedAtTheCommit) {
  start(limits(1, 10), 20);
  add(request(1, 5));
  plan();
  scheduler_->take_events();
  scheduler_->cancel(1);
  EXPECT_THAT(endings(scheduler_->take_events()), ElementsAre(Finish::kCancelled));
  EXPECT_LT(cache_->num_free(), 20);
  EXPECT_THAT(commit(), IsEmpty());
  EXPECT_EQ(cache_->num_free(), 20);
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(Schedule, PromptLogprobsComputeEveryRowOfThePromptOnce) {
  start(limits(2, 40));  // six rows of logits a step
  NewSequence second = request(1, 10);
  second.id = 2;
  second.params.prompt_logprobs = 3;
  add(request(1, 10, 1));
  step();
  add(second);
  const StepPlan first = plan();
  EXPECT_THAT(rows(first), ElementsAre(Rows{2, 0, 6})) << "nothing comes from the cache";
  EXPECT_EQ(first.spans[0].prompt_logprobs, 3);
  EXPECT_EQ(first.spans[0].next, second.prompt[6]);
  EXPECT_FALSE(first.spans[0].sample);
  std::vector<Event> events = commit();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].prompt_logprobs.size(), 6u);
  EXPECT_THAT(step(), ElementsAre(Rows{2, 6, 4}));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].prompt_logprobs.size(), 3u);
  EXPECT_EQ(events_[0].tokens.size(), 1u);
  const StepPlan& decode = plan();
  EXPECT_EQ(decode.spans[0].prompt_logprobs, kNoLogprobs);
}

TEST_F(Schedule, APooledSequenceEndsWithTheLastRowOfItsPrompt) {
  start(limits(2, 6));
  NewSequence s = request(1, 8);
  s.pooling = {.rows = Pooling::kLast, .logits = true, .columns = {}};
  add(std::move(s));
  EXPECT_FALSE(plan().spans[0].pool);
  const Span last = plan().spans.at(0);
  EXPECT_TRUE(last.pool && last.pool_logits);
  EXPECT_FALSE(last.sample);
  EXPECT_EQ(std::pair(last.begin, last.count), std::pair(6, 2));
  EXPECT_TRUE(plan().empty()) << "nothing follows the prompt";
  EXPECT_THAT(endings(commit()), IsEmpty());
  const std::vector<Event> events = commit();
  ASSERT_THAT(endings(events), ElementsAre(Finish::kStop));
  EXPECT_THAT(events.back().pooled, ElementsAre(1, 2));
  EXPECT_THAT(events.back().tokens, IsEmpty());
  EXPECT_EQ(scheduler_->stats().generation_tokens, 0u);
}

TEST_F(Schedule, WhatPoolsEveryRowFindsNoPrefix) {
  start(limits(1, 100));
  for (const Pooling::Rows rows : {Pooling::kLast, Pooling::kFirst, Pooling::kMean}) {
    for (const bool again : {false, true}) {
      NewSequence s = request(1, 10);
      s.id = static_cast<SeqId>(10 * rows + again);
      s.pooling.rows = rows;
      add(std::move(s));
      const bool found = rows == Pooling::kLast && again;
      EXPECT_EQ(std::get<2>(step().at(0)), found ? 2 : 10) << rows << again;
    }
  }
}

TEST_F(Schedule, APooledSequenceMayFillTheContext) {
  start(limits(2, 100, 20));
  NewSequence s = request(1, 20);
  EXPECT_FALSE(scheduler_->add(s));
  s.pooling.rows = Pooling::kMean;
  add(s);
  step();
  EXPECT_THAT(endings(events_), ElementsAre(Finish::kStop));
}

TEST_F(Schedule, AModelWithoutAHeadDrawsNothing) {
  Limits headless = limits(1, 10);
  headless.generates = false;
  start(headless);
  const Status refused = scheduler_->add(request(1, 3));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("--runner generate"));
  NewSequence s = request(2, 3);
  s.pooling.rows = Pooling::kLast;
  s.params.prompt_logprobs = 1;
  EXPECT_FALSE(scheduler_->add(s));
  s.params.prompt_logprobs = kNoLogprobs;
  add(s);
}

TEST_F(Schedule, AnIdIsUsedOnce) {
  start(limits(1, 10));
  add(request(1, 5));
  EXPECT_DEATH((void)scheduler_->add(request(1, 5)), "sequence 1 exists");
}

}  // namespace
}  // namespace skiff::sched
