// What the scheduler does with blocks of the cache: prefixes, preemption, and sequences that fill
// the cache or never fit it.
#include <gmock/gmock.h>

#include <set>

#include "kv/record_source.h"
#include "sched/scheduler_testing.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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

// The blocks of a prompt wait neither for the rows of the next one nor with them for the end of a
// step.
TEST_F(Schedule, BlocksThatAreHandedOverGoBeforeFurtherRows) {
  kv::BlockSources sources;
  sources.push_back(std::make_unique<kv::RecordSource>(32, /*seed=*/0));
  cache_ = std::make_unique<kv::CacheIndex>(
      40, kBlock, true, 0, kv::TierConfig{.host_blocks = 8, .spill = false, .hands_over = true},
      std::move(sources));
  scheduler_ = std::make_unique<Scheduler>(limits(4, 64), *cache_);
  add(request(1, 13, 1));
  EXPECT_THAT(rows(plan()), ElementsAre(Rows{1, 0, 13}));
  add(request(2, 9, 1));
  EXPECT_TRUE(scheduler_->plan().empty()) << "its rows would go before the blocks of the first";
  commit();
  const StepPlan& saves = plan();
  EXPECT_EQ(saves.saves.size(), 3u);
  EXPECT_THAT(saves.spans, IsEmpty());
  EXPECT_THAT(rows(plan()), ElementsAre(Rows{2, 0, 9})) << "the device need not wait";
  EXPECT_THAT(scheduler_->tiers().take_jobs(), IsEmpty());
  commit();
  EXPECT_EQ(scheduler_->tiers().take_jobs().size(), 3u) << "before the rows are done";
  commit();
  EXPECT_EQ(plan().saves.size(), 1u) << "half of host memory may be on its way";
  commit();
  EXPECT_TRUE(plan().empty());
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

}  // namespace
}  // namespace skiff::sched
