#include "serve/service/event_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

namespace skiff::service {
namespace {

using Time = EventQueue::Time;
constexpr Time kForEver = Time::max();

Event event_of(SeqId id, std::vector<Token> tokens) {
  Event event;
  event.seq = id;
  event.tokens = std::move(tokens);
  return event;
}

TEST(EventQueue, HandsOverWhatCameInOrder) {
  EventQueue queue;
  queue.push({event_of(1, {10}), event_of(2, {20})});
  queue.push({event_of(1, {11})});
  EXPECT_EQ(queue.size(), 3u);
  const auto events = queue.wait_until(kForEver);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].tokens, std::vector<Token>{10});
  EXPECT_EQ(events[2].tokens, std::vector<Token>{11});
  EXPECT_EQ(queue.size(), 0u);
}

TEST(EventQueue, WaitsEndByTimeByWakingAndByClosing) {
  EventQueue queue;
  const auto now = std::chrono::steady_clock::now();
  EXPECT_TRUE(queue.wait_until(now + std::chrono::milliseconds(20)).empty());
  EXPECT_GE(std::chrono::steady_clock::now() - now, std::chrono::milliseconds(20));
  queue.wake();
  EXPECT_TRUE(queue.wait_until(kForEver).empty());
  std::thread closer([&] { queue.close(); });
  EXPECT_TRUE(queue.wait_until(kForEver).empty());
  closer.join();
  EXPECT_TRUE(queue.closed());
  queue.push({event_of(1, {1})});
  EXPECT_EQ(queue.wait_until(kForEver).size(), 1u);
}

// The consumer sleeps through 1,000 steps of 64 sequences: one event for each sequence is left, and
// no token is lost.
TEST(EventQueue, ASleepingConsumerCostsNoMoreEventsThanSequences) {
  constexpr int kSequences = 64, kSteps = 1000;
  EventQueue queue(/*merge_above=*/100);
  size_t most = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Event> events;
    for (int s = 0; s < kSequences; ++s) {
      Event event = event_of(static_cast<SeqId>(s), {step, step + s});
      event.admitted = step == 0;
      event.cached = step == 0 ? s : 0;
      event.logprobs = {{.chosen = {step, -1.f}}, {.chosen = {step + s, -2.f}}};
      event.draft_logprobs = {{.at = step % 2, .logprobs = {.chosen = {step, -4.f}}}};
      event.drafted = 3;
      event.kept = step % 2;
      if (step == 0) event.prompt_logprobs = {{.chosen = {s, -3.f}}};
      if (step + 1 == kSteps) event.finish = Finish::kLength, event.why = "over";
      events.push_back(std::move(event));
    }
    queue.push(std::move(events));
    most = std::max(most, queue.size());
  }
  EXPECT_LE(most, 100u + kSequences);
  const auto events = queue.wait_until(kForEver);
  ASSERT_EQ(events.size(), size_t{kSequences});
  for (const Event& event : events) {
    ASSERT_EQ(event.tokens.size(), size_t{2} * kSteps);
    ASSERT_EQ(event.logprobs.size(), size_t{2} * kSteps);
    for (int step = 0; step < kSteps; ++step) {
      const size_t i = 2 * static_cast<size_t>(step);
      ASSERT_EQ(event.tokens[i], step);
      ASSERT_EQ(event.tokens[i + 1], step + static_cast<int>(event.seq));
      ASSERT_EQ(event.logprobs[i + 1].chosen.token, event.tokens[i + 1]);
      const DraftLogprobs& draft = event.draft_logprobs.at(static_cast<size_t>(step));
      ASSERT_EQ(draft.at, 2 * step + step % 2);
      ASSERT_EQ(draft.logprobs.chosen.token, step);
    }
    EXPECT_TRUE(event.admitted);
    EXPECT_EQ(event.cached, static_cast<int>(event.seq));
    EXPECT_EQ(event.prompt_logprobs.size(), 1u);
    EXPECT_EQ(event.finish, Finish::kLength);
    EXPECT_EQ(event.why, "over");
    EXPECT_EQ(event.drafted, 3 * kSteps);
    EXPECT_EQ(event.kept, kSteps / 2);
  }
}

// Whenever the consumer reads, each sequence's tokens arrive once and in order.
TEST(EventQueue, NothingIsLostOrTurnedAroundHoweverLateTheConsumer) {
  for (const size_t merge_above : {0, 1, 7, 1000}) {
    EventQueue queue(merge_above);
    std::mt19937_64 rng(merge_above);
    std::map<SeqId, std::vector<Token>> sent, got;
    const auto collect = [&] {
      for (Event& event : queue.wait_until(Time{}))
        got[event.seq].insert(got[event.seq].end(), event.tokens.begin(), event.tokens.end());
    };
    for (int i = 0; i < 2000; ++i) {
      const SeqId id = rng() % 10;
      const auto token = static_cast<Token>(rng() % 1000);
      sent[id].push_back(token);
      queue.push({event_of(id, {token})});
      if (rng() % 20 == 0) collect();
    }
    collect();
    EXPECT_EQ(got, sent);
  }
}

}  // namespace
}  // namespace skiff::service
