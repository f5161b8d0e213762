// Tests the scheduler's decisions, one scenario at a time. That they never change a sequence's text
// is tested with random schedules in engine/engine_test.cc.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "kv/record_source.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kBlock = 4;

NewSequence request(SeqId id, int prompt, int max_tokens = 8, int priority = 0) {
  NewSequence s;
  s.id = id;
  for (int i = 0; i < prompt; ++i) s.prompt.push_back(static_cast<Token>(id * 1000) + i);
  s.stop.max_tokens = max_tokens;
  s.priority = priority;
  return s;
}

class Schedule : public testing::Test {
 protected:
  void start(const Limits& limits, int blocks = 100, bool share = true) {
    cache_ = std::make_unique<kv::CacheIndex>(blocks, kBlock, share);
    scheduler_ = std::make_unique<Scheduler>(limits, *cache_);
  }
  void add(NewSequence s) { ASSERT_TRUE(scheduler_->add(std::move(s))); }
  const StepPlan& plan() {
    flying_.push_back(scheduler_->plan());
    return flying_.back();
  }
  // Every span that samples gets `token` as its result.
  std::vector<Event> commit(Token token = 7) {
    const StepPlan plan = std::move(flying_.front());
    flying_.pop_front();
    StepResult result;
    result.step = plan.step;
    for (const Span& s : plan.spans) {
      result.tokens.push_back(s.sample ? std::vector<Token>{token} : std::vector<Token>{});
      result.logprobs.emplace_back(result.tokens.back().size());
      const size_t rows = static_cast<size_t>(s.count - s.sample);
      result.prompt_logprobs.emplace_back(s.prompt_logprobs == kNoLogprobs ? 0 : rows);
      result.pooled.push_back(s.pool ? std::vector<float>{1, 2} : std::vector<float>{});
    }
    if (!plan.empty()) scheduler_->commit(plan, result);
    return scheduler_->take_events();
  }
  // (sequence, begin, count) of each span.
  using Rows = std::tuple<SeqId, int, int>;
  static std::vector<Rows> rows(const StepPlan& plan) {
    std::vector<Rows> out;
    out.reserve(plan.spans.size());
    for (const Span& s : plan.spans) out.emplace_back(s.seq, s.begin, s.count);
    return out;
  }
  std::vector<Rows> step(Token token = 7) {
    auto out = rows(plan());
    events_ = commit(token);
    return out;
  }

  std::unique_ptr<kv::CacheIndex> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<StepPlan> flying_;
  std::vector<Event> events_;
};

Limits limits(int seqs, int rows, int context = 200) {
  return {.max_seqs = seqs, .max_rows = rows, .max_context = context, .max_logit_rows = seqs + 4};
}

std::vector<Finish> endings(const std::vector<Event>& events) {
  std::vector<Finish> out;
  for (const Event& e : events)
    if (e.finish != Finish::kNone) out.push_back(e.finish);
  return out;
}

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

// A sequence that lost its blocks, also in host memory, gets them from the file a second time.
TEST_F(Schedule, AfterPreemptionTheFileIsAskedAgain) {
  const NewSequence first = request(1, 1, 18), second = request(2, 9, 8);
  kv::BlockKey key = kv::root_key("", "");
  std::vector<kv::StoredBlock> stored;
  for (int i = 0; i < 2; ++i) {
    key = kv::child_key(key,
                        std::span(second.prompt).subspan(static_cast<size_t>(i) * kBlock, kBlock));
    stored.push_back({.record = i, .key = key});
  }
  Limits two = limits(2, 64);
  two.policy.reserve = 0;
  kv::BlockSources sources;
  sources.push_back(std::make_unique<kv::RecordSource>(32, /*seed=*/0, stored));
  cache_ = std::make_unique<kv::CacheIndex>(
      6, kBlock, true, 0, kv::TierConfig{.host_blocks = 2, .spill = false}, std::move(sources));
  scheduler_ = std::make_unique<Scheduler>(two, *cache_);
  int reads = 0, reads_before = 0;
  const auto answer = [&] {
    for (const kv::TierJob& job : scheduler_->tiers().take_jobs()) {
      reads += job.kind == kv::TierJob::Kind::kRead && job.key == key;
      scheduler_->tiers().done({job.id, /*ok=*/true});
    }
  };
  add(first);
  plan();
  commit();
  add(second);
  std::set<SeqId> ended;
  for (int i = 0; i < 200 && ended.size() < 2; ++i) {
    plan();
    answer();
    for (const Event& e : commit())
      if (e.finish != Finish::kNone) ended.insert(e.seq);
    answer();
    if (scheduler_->stats().preemptions == 0) reads_before = reads;
  }
  EXPECT_EQ(ended.size(), 2u);
  EXPECT_GE(scheduler_->stats().preemptions, 1u);
  EXPECT_EQ(reads_before, 1);
  EXPECT_GT(reads, reads_before);
}

// The same placeholder tokens: of two images nothing is shared but the block before them.
TEST_F(Schedule, APromptFindsOnlyBlocksOfItsOwnExtras) {
  start(limits(4, 64));
  SeqId id = 0;
  const auto cached = [&](std::vector<CacheExtra> extras) {
    NewSequence s = request(++id, 0, 1);
    for (int i = 0; i < 13; ++i) s.prompt.push_back(i < 5 || i >= 8 ? i : 99);
    s.cache.extras = std::move(extras);
    add(std::move(s));
    plan();
    const std::vector<Event> events = commit();
    EXPECT_TRUE(events.front().admitted && events.back().finish == Finish::kLength);
    return events.front().cached;
  };
  const auto image = [](const char* digest) {
    return CacheExtra{.begin = 5, .end = 8, .identity = digest};
  };
  const CacheExtra adapter{.identity = "french"};
  EXPECT_EQ(cached({image("cat")}), 0);
  EXPECT_EQ(cached({image("cat")}), 12);
  EXPECT_EQ(cached({image("dog")}), 4);
  EXPECT_EQ(cached({image("dog")}), 12);
  EXPECT_EQ(cached({adapter, image("cat")}), 0);
  EXPECT_EQ(cached({adapter, image("cat")}), 12);
  EXPECT_EQ(cached({}), 4);
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

TEST_F(Schedule, WhoWaitsForMemoryIsPassedByFewOnly) {
  Limits l = limits(3, 40);
  l.policy.max_overtakes = 2;
  start(l, 6);
  add(request(1, 12, 8));
  step();
  add(request(2, 16, 2));  // four blocks: not while the first has its own
  for (SeqId id = 3; id <= 6; ++id) add(request(id, 2, 1));
  std::vector<SeqId> order;
  while (!scheduler_->idle())
    for (const Rows& r : step())
      if (std::get<1>(r) == 0) order.push_back(std::get<0>(r));
  EXPECT_THAT(order, ElementsAre(3, 4, 2, 5, 6));
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

TEST_F(Schedule, TheYoungestOfTheLeastImportantIsPreempted) {
  start(limits(3, 40), /*blocks=*/8, /*share=*/false);
  add(request(1, 4, 30, 1));
  add(request(2, 4, 20, 0));
  add(request(3, 4, 20, 1));
  EXPECT_EQ(step().size(), 3u);
  while (scheduler_->stats().preemptions == 0) step();
  EXPECT_EQ(scheduler_->stats().running, 2);
  const StepPlan next = plan();
  EXPECT_THAT(rows(next), ElementsAre(testing::FieldsAre(2, testing::_, 1),
                                      testing::FieldsAre(1, testing::_, 1)));
  commit();
  while (scheduler_->stats().waiting > 0) step();  // 3 comes back once there is room
  EXPECT_EQ(scheduler_->stats().running + scheduler_->stats().waiting, 1);
}

class TwoInFlight : public Schedule, public testing::WithParamInterface<int> {};

TEST_P(TwoInFlight, TheElderStillWins) {
  start(limits(3, 60), /*blocks=*/GetParam(), /*share=*/false);
  for (SeqId id = 1; id <= 3; ++id) add(request(id, 7 + static_cast<int>(id), 24));
  std::vector<SeqId> ended;
  int missed = 0;  // plans in a row that leave out the first sequence
  for (int turn = 0; turn < 500 && !scheduler_->idle(); ++turn) {
    const StepPlan& p = plan();
    const bool ran = !p.empty();
    for (const OpenSlot& open : p.opened)
      EXPECT_TRUE(turn == 0 || open.history[0] != 1000) << "1 is never computed again";
    missed = ended.empty() && ran && p.spans[0].seq != 1 ? missed + 1 : 0;
    EXPECT_LE(missed, 1) << "1 waits for one step in flight at most";
    if (!ran) flying_.pop_back();
    if (flying_.empty() || (ran && flying_.size() < 2)) continue;
    for (const Event& e : commit())
      if (e.finish != Finish::kNone) ended.push_back(e.seq);
  }
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_GT(scheduler_->stats().preemptions, 0u);
  EXPECT_EQ(ended.at(0), 1u);
}

INSTANTIATE_TEST_SUITE_P(Blocks, TwoInFlight, testing::Range(11, 20));

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

TEST_F(Schedule, APreemptedSequenceGoesOnFromWhatItHas) {
  start(limits(2, 40), /*blocks=*/6, /*share=*/false);
  add(request(1, 8, 16));
  add(request(2, 8, 16));
  while (scheduler_->stats().preemptions == 0) step(9);
  while (scheduler_->stats().waiting > 0 && flying_.empty()) {
    const StepPlan& p = plan();
    if (!p.opened.empty()) {
      EXPECT_EQ(p.opened[0].prompt_len, 8);
      EXPECT_GT(p.opened[0].history.size(), 8u);
      EXPECT_EQ(p.opened[0].history.back(), 9);
      EXPECT_EQ(p.spans.back().count, static_cast<int>(p.opened[0].history.size()));
      for (const Event& e : scheduler_->take_events()) EXPECT_FALSE(e.admitted);
    }
    commit(9);
  }
  int output = 0;
  while (!scheduler_->idle()) step(9);
  output = static_cast<int>(scheduler_->stats().generation_tokens);
  EXPECT_EQ(output, 32);
  EXPECT_EQ(scheduler_->stats().prompt_tokens, 16u);
}

TEST_F(Schedule, ASequenceFillsTheContextAndEnds) {
  start(limits(1, 10, /*context=*/12));
  add(request(1, 9, 1000));
  step();
  step();
  EXPECT_THAT(endings(events_), IsEmpty());
  step();
  EXPECT_THAT(endings(events_), ElementsAre(Finish::kLength));
  EXPECT_EQ(scheduler_->stats().generation_tokens, 3u);
}

TEST_F(Schedule, ASequenceAloneFillsTheCacheAndEnds) {
  start(limits(2, 100, /*context=*/200), /*blocks=*/3);
  add(request(1, 10, 1000));
  add(request(2, 5, 2));
  while (!scheduler_->idle()) step();
  // 12 positions are kept; the last token needs none.
  EXPECT_EQ(scheduler_->stats().generation_tokens, 3u + 2u);
  EXPECT_EQ(cache_->num_free(), 3);
}

TEST_F(Schedule, WhatCanNeverRunIsRefusedWithTheNumbers) {
  start({.max_seqs = 2, .max_rows = 10, .max_context = 50, .max_logit_rows = 2, .vocab = 5000},
        /*blocks=*/5);
  const auto why = [&](NewSequence s) { return scheduler_->add(std::move(s)).error().what; };
  EXPECT_THAT(why(request(1, 50)), testing::AllOf(HasSubstr("50 tokens"), HasSubstr("context")));
  EXPECT_THAT(why(request(1, 21)), testing::AllOf(HasSubstr("21"), HasSubstr("6 cache blocks"),
                                                  HasSubstr("there are 5")));
  EXPECT_THAT(why(request(1, 0)), HasSubstr("no tokens"));
  EXPECT_THAT(why(request(1, 3, 0)), HasSubstr("max_tokens is 0"));
  EXPECT_THAT(why(request(5, 3)), HasSubstr("token 5000"));
  NewSequence negative = request(1, 3);
  negative.prompt[1] = kOnDevice;
  EXPECT_THAT(why(negative), HasSubstr("token -1"));
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_TRUE(scheduler_->add(request(1, 20)));
}

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

TEST_F(Schedule, APrefixIsComputedOnce) {
  start(limits(2, 40));
  NewSequence second = request(1, 10);
  second.id = 2;
  add(request(1, 10, 1));
  step();
  add(second);
  EXPECT_THAT(rows(plan()), ElementsAre(Rows{2, 8, 2}));
  const auto events = scheduler_->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].admitted);
  EXPECT_EQ(events[0].cached, 8);
  EXPECT_EQ(scheduler_->stats().cached_tokens, 8u);
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

TEST_F(Schedule, ANewSequenceStartsOnlyWhenItsWholePromptFits) {
  start(limits(2, 8), /*blocks=*/10, /*share=*/false);
  add(request(1, 16, 20));
  add(request(2, 20, 4));
  add(request(3, 1, 4));
  for (int i = 0; i < 3; ++i) {
    for (const Rows& r : step()) EXPECT_NE(std::get<0>(r), 2u) << "3 is small enough to pass it";
  }
  scheduler_->cancel(1);
  scheduler_->cancel(3);
  EXPECT_THAT(step(), ElementsAre(Rows{2, 0, 8}));
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
