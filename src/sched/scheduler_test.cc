// Which sequences a step has, and how many rows of each, one scenario at a time. That these
// decisions never change a text is tested with random schedules in engine/engine_test.cc.
#include <gmock/gmock.h>

#include <algorithm>

#include "sched/scheduler_testing.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(Schedule, ALongPromptNeverDelaysADecode) {
  start(limits(4, 10));
  add(request(1, 3));
  add(request(2, 30));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 3}, Rows{2, 0, 7}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 3, 1}, Rows{2, 7, 9}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 4, 1}, Rows{2, 16, 9}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 5, 1}, Rows{2, 25, 5}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 6, 1}, Rows{2, 30, 1}));
}

TEST_F(Schedule, PromptCandidatesAreBounded) {
  Limits bounded = limits(4, 10);
  bounded.vocab = 9000;
  bounded.max_prompt_candidates = 90;
  start(bounded);
  NewSequence many = request(1, 9);
  many.params.prompt_logprobs = 9;
  const Status nine = scheduler_->add(many);
  EXPECT_TRUE(nine) << "10 candidates at each of 9 tokens";
  many.id = 2;
  many.params.prompt_logprobs = 10;
  const Status ten = scheduler_->add(many);
  ASSERT_FALSE(ten);
  EXPECT_EQ(ten.error().field, "prompt_logprobs");
  EXPECT_THAT(ten.error().what, HasSubstr("99 in all; at most 90"));
  many.id = 3;
  many.params.prompt_logprobs = kAllLogprobs;
  EXPECT_THAT(scheduler_->add(many).error().what, HasSubstr("9001 candidates at each of 9 tokens"));
  many.prompt.assign(16384, 1);
  start({.max_context = 32768, .vocab = 151936});
  EXPECT_FALSE(scheduler_->add(many)) << "by default, too: 20 GB";
}

TEST_F(Schedule, APromptIsNotCutWhenChunksAreOff) {
  Limits whole = limits(2, 12);
  whole.chunked_prefill = false;
  start(whole);
  add(request(1, 6, 2));
  add(request(2, 10, 2));  // fits max_rows - max_seqs
  add(request(3, 30, 2));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 6})) << "six rows are left, it wants ten";
  EXPECT_THAT(step(), ElementsAre(Rows{1, 6, 1}, Rows{2, 0, 10}));
  EXPECT_THAT(step(), ElementsAre(Rows{2, 10, 1}, Rows{3, 0, 11})) << "never fits: cut";
  EXPECT_THAT(step(), ElementsAre(Rows{3, 11, 12}));
  EXPECT_THAT(step(), ElementsAre(Rows{3, 23, 7}));
}

TEST_F(Schedule, ALongPromptLeavesRowsToOthers) {
  Limits l = limits(4, 20);
  l.policy.long_prompt = l.policy.long_chunk = 8;
  start(l);
  add(request(1, 30));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 8})) << "someone may come while the step runs";
  add(request(2, 4));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 8, 8}, Rows{2, 0, 4}));
}

TEST_F(Schedule, RowsFarIntoAPromptCostMore) {
  Limits l = limits(1, 40);
  l.policy.long_prompt = 20;
  l.policy.long_chunk = 12;
  l.policy.row_context = 12;
  start(l);
  add(request(1, 40));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 12}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 12, 6}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 18, 5}));
}

TEST_F(Schedule, ShortPromptsGoBeforeALongOneButNotForEver) {
  Limits l = limits(3, 10);
  l.policy.long_prompt = l.policy.long_chunk = 8;
  l.policy.long_yields = 2;
  start(l);
  add(request(1, 12, 1));
  for (SeqId id = 2; id <= 6; ++id) add(request(id, 5, 1));
  EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 5}, Rows{3, 0, 5}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 8}, Rows{4, 0, 2}));
}

TEST_F(Schedule, APromptYieldsByItsLength) {
  Limits l = limits(1, 10);
  l.policy.yield_tokens = 3;
  start(l);
  add(request(1, 9, 1));
  add(request(2, 5, 1));
  for (SeqId id = 3; id <= 6; ++id) add(request(id, 2, 1));
  std::vector<SeqId> order;
  while (!scheduler_->idle()) order.push_back(std::get<0>(step().at(0)));
  EXPECT_THAT(order, ElementsAre(3, 2, 4, 1, 5, 6))
      << "the first yields to three, the second to one";
}

TEST_F(Schedule, OneLongPromptAtATimeIsCut) {
  Limits l = limits(4, 10);
  l.policy.long_prompt = l.policy.long_chunk = 8;
  start(l);
  add(request(1, 20, 1));
  add(request(2, 20, 1));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 0, 8}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 8, 8}));
  EXPECT_THAT(step(), ElementsAre(Rows{1, 16, 4}, Rows{2, 0, 4}));
}

TEST_F(Schedule, PriorityYieldsToAge) {
  Limits l = limits(1, 10);
  l.policy.ageing = 3;
  start(l);
  add(request(1, 2, 1, 1));
  for (SeqId id = 2; id <= 7; ++id) add(request(id, 2, 1, 0));
  std::vector<SeqId> order;
  while (!scheduler_->idle()) order.push_back(std::get<0>(step().at(0)));
  EXPECT_THAT(order, ElementsAre(2, 3, 4, 1, 5, 6, 7)) << "three arrivals make up for one unit";
}

TEST_F(Schedule, LowerPriorityNumbersStartFirstThenEarlierArrivals) {
  start(limits(1, 10));
  add(request(1, 3, 1, 5));
  add(request(2, 3, 1, -1));
  add(request(3, 3, 1, 5));
  add(request(4, 3, 1, 0));
  std::vector<SeqId> order;
  while (!scheduler_->idle()) order.push_back(std::get<0>(step().at(0)));
  EXPECT_THAT(order, ElementsAre(2, 4, 1, 3));
}

TEST_F(Schedule, WhoContinuesASequenceHasItsPlace) {
  start(limits(1, 20));
  add(request(1, 3, 8));
  add(request(2, 3, 1));
  step();
  plan();  // one more step of the first is in flight
  NewSequence rest = request(3, 6, 4);
  rest.continues = 1;
  rest.written = 2;
  add(std::move(rest));
  EXPECT_THAT(endings(commit()), ElementsAre(Finish::kCancelled));
  EXPECT_EQ(plan().opened.at(0).written, 2);
  commit();
  std::vector<SeqId> order = {3};
  while (!scheduler_->idle()) order.push_back(std::get<0>(step().at(0)));
  EXPECT_THAT(order, ElementsAre(3, 3, 3, 3, 2));
  EXPECT_EQ(scheduler_->stats().prompt_tokens, 3u + 3u) << "the tokens of 3 were counted before";
}

TEST_F(Schedule, WhoContinuesASequenceIsNotRefusedForItsLength) {
  start(limits(2, 20, /*context=*/200), /*blocks=*/3);
  add(request(1, 10, 100));
  step();
  NewSequence rest = request(2, 13, 4);  // 12 positions, and the last token
  rest.continues = 1;
  add(std::move(rest));
  const auto events = scheduler_->take_events();
  EXPECT_THAT(endings(events), ElementsAre(Finish::kCancelled, Finish::kLength));
  EXPECT_EQ(events.back().seq, 2u);
  EXPECT_TRUE(scheduler_->idle());
  NewSequence late = request(3, 5, 1);  // what it continues has ended by itself
  late.continues = 1;
  add(std::move(late));
  step();
  EXPECT_THAT(endings(events_), ElementsAre(Finish::kLength));
}

TEST_F(Schedule, ADecodeGivesWayToAPromptThatIsMoreImportant) {
  int most_missed = 0;                    // plans in a row that leave the prompt out
  for (int used = 4; used < 8; ++used) {  // uses the rest of the last block of the decode
    start(limits(2, 4), /*blocks=*/16, /*share=*/false);
    add(request(2, used, 60, /*priority=*/1));
    while (scheduler_->stats().generation_tokens == 0) step();
    add(request(1, 48, 1, /*priority=*/0));
    int missed = 0;
    do {
      missed = std::get<0>(step().back()) == 1 ? 0 : missed + 1;
      most_missed = std::max(most_missed, missed);
    } while (endings(events_).empty());
    EXPECT_EQ(scheduler_->stats().preemptions, 1u);
  }
  EXPECT_EQ(most_missed, 1) << "the step in which the decode was planned already";
}

}  // namespace
}  // namespace skiff::sched
