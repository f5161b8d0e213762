// Replicas that share experts take part in each other's rounds, sleep together, and end together.
#include "engine/lockstep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/communicator.h"
#include "engine/side_by_side.h"

namespace skiff::engine {
namespace {

using std::chrono::milliseconds;
using Turn = Lockstep::Turn;

StepPlan plan_with_rows(uint64_t step) {
  return {.step = step, .spans = {{.seq = 1, .count = 1}}, .tokens = {3}};
}

template <class Kind>
bool is(const Turn& turn) {
  return std::holds_alternative<Kind>(turn);
}

class LockstepTest : public testing::Test {
 protected:
  LockstepTest() {
    for (int replica = 0; replica < 3; ++replica) lockstep_.open(replica);
  }
  // The step of a turn that is a plan.
  static uint64_t step_of(const Turn& turn) { return std::get<StepPlan>(turn).step; }
  void expect_own(int replica, uint64_t step) {
    lockstep_.give(replica, plan_with_rows(step));
    EXPECT_EQ(step_of(lockstep_.next(replica)), step);
  }
  void expect_company(int replica) {
    EXPECT_TRUE(is<Lockstep::Company>(lockstep_.next(replica))) << "replica " << replica;
  }
  void expect_closed(int replica) {
    EXPECT_TRUE(is<Lockstep::Closed>(lockstep_.next(replica))) << "replica " << replica;
  }

  Lockstep lockstep_{3};
};

// Whichever have rows, each once.
TEST_F(LockstepTest, WhoHasRowsCallsTheOthers) {
  for (unsigned having = 1; having < 8; ++having) {
    for (int replica = 0; replica < 3; ++replica)
      if (having >> replica & 1) expect_own(replica, having);
    for (int replica = 0; replica < 3; ++replica)
      if (!(having >> replica & 1)) expect_company(replica);
    for (int replica = 0; replica < 3; ++replica)
      EXPECT_EQ(lockstep_.agree(2)[static_cast<size_t>(replica)].rows, having >> replica & 1);
  }
  for (int replica = 0; replica < 3; ++replica) {
    lockstep_.close(replica);
    expect_closed(replica);
  }
}

TEST_F(LockstepTest, CopiesAndTasksNeedNoCompany) {
  lockstep_.give(0, StepPlan{.step = 3, .saves = {{.block = 1, .host = 2}}});
  bool done = false;
  lockstep_.give(0, Lockstep::Task([&] { done = true; }));
  EXPECT_EQ(step_of(lockstep_.next(0)), 3u);
  Turn turn = lockstep_.next(0);
  std::get<Lockstep::Task>(turn)();
  EXPECT_TRUE(done);
  lockstep_.close(1);
  expect_closed(1);  // nobody has called
}

// Nobody is called to a round that is not there, so the thread sleeps.
TEST_F(LockstepTest, WithoutRowsNobodyIsWoken) {
  std::atomic<bool> woken = false;
  std::thread waits([&] {
    lockstep_.next(0);
    woken = true;
  });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(woken);
  expect_own(2, 1);
  waits.join();
  EXPECT_TRUE(woken);
}

// Two replicas that plan each step only when they have the last result compute in the same rounds.
TEST_F(LockstepTest, WhoHadRowsIsAwaitedForAMoment) {
  expect_own(0, 1);
  expect_own(1, 1);
  expect_own(0, 2);
  const auto begin = std::chrono::steady_clock::now();
  expect_company(1);  // it has no more
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::microseconds(900));
}

// A round that is called while a replica has no runner waits for the next one.
TEST_F(LockstepTest, ARoundWaitsForTheNextRunner) {
  lockstep_.close(0);
  expect_closed(0);
  expect_own(1, 1);
  expect_closed(0);
  lockstep_.open(0);
  expect_company(0);
}

// A replica that is called while its own step is in flight has its next step soon, or never.
TEST_F(LockstepTest, WhoHasAStepInFlightIsAwaitedLonger) {
  expect_own(0, 1);
  expect_company(1);
  expect_own(1, 5);  // calls replica 0 to the second round
  std::thread gives([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    lockstep_.give(0, plan_with_rows(2));
  });
  EXPECT_EQ(step_of(lockstep_.next(0, /*in_flight=*/true)), 2u);
  gives.join();
  expect_own(1, 6);
  EXPECT_TRUE(is<Lockstep::Company>(lockstep_.next(0, /*in_flight=*/true)));
}

// An engine plans its next step at the end of a long one, and must not miss the round by then.
TEST_F(LockstepTest, WhoHasAStepInFlightIsAwaitedForAsLongAsRoundsTake) {
  constexpr milliseconds kRound{100};
  expect_own(0, 1);
  expect_company(1);
  std::this_thread::sleep_for(kRound);
  expect_own(0, 2);
  expect_own(1, 5);  // in the same round
  std::this_thread::sleep_for(kRound);
  expect_own(1, 6);  // calls replica 0 to the third one
  std::thread gives([&] {
    std::this_thread::sleep_for(kRound);
    lockstep_.give(0, plan_with_rows(3));
  });
  const Turn turn = lockstep_.next(0, /*in_flight=*/true);
  gives.join();
  ASSERT_TRUE(is<StepPlan>(turn)) << "it took part without rows";
  EXPECT_EQ(step_of(turn), 3u);
}

// In each round every replica learns what all have, however far apart they come.
TEST_F(LockstepTest, AllAgreeOnThePartsOfEachRound) {
  constexpr int kRounds = 300;
  const auto rows_of = [](int replica, int round) { return (replica + 1) * (round % 5 + 1); };
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int replica = 0; replica < 3; ++replica)
    threads.emplace_back([&, replica] {
      for (int round = 0; round < kRounds; ++round) {
        StepPlan plan;
        const int rows = rows_of(replica, round);
        plan.spans.push_back({.seq = 1, .count = rows, .sample = true});
        plan.tokens.resize(static_cast<size_t>(rows));
        lockstep_.give(replica, std::move(plan));
        lockstep_.next(replica);
        if ((round + replica) % 50 == 0) std::this_thread::sleep_for(milliseconds(2));
        const std::span<const RoundPart> parts = lockstep_.agree(replica);
        ASSERT_EQ(parts.size(), 3u);
        for (int other = 0; other < 3; ++other)
          ASSERT_EQ(parts[static_cast<size_t>(other)].rows, rows_of(other, round)) << round;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LockstepTest, NobodyWaitsForAgreementInAGroupThatHasEnded) {
  expect_own(1, 7);
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(20));
    lockstep_.end("replica 2: no room");
    lockstep_.end("replica 0: nor here");
  });
  try {
    lockstep_.agree(1);
    ADD_FAILURE() << "replica 1 went on alone";
  } catch (const comm::GroupEnded& ended) {
    EXPECT_STREQ(ended.what(), "replica 2: no room");
  }
  ends.join();
  EXPECT_THROW(lockstep_.throw_if_ended(), comm::GroupEnded);
}

TEST_F(LockstepTest, AllGetWhatTheFirstOneGave) {
  std::vector<std::thread> threads;
  threads.reserve(3);
  std::vector<std::vector<std::byte>> got(3);
  for (int replica = 0; replica < 3; ++replica)
    threads.emplace_back([&, replica] {
      got[static_cast<size_t>(replica)] =
          lockstep_.of_first(replica, {std::byte(replica + 1), std::byte{9}});
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : got) EXPECT_EQ(one, (std::vector{std::byte{1}, std::byte{9}}));
}

TEST(LockstepExchanges, AreThoseOfTheReplicaAndItsRank) {
  std::vector<Lockstep::Exchanges> given(3);
  for (Lockstep::Exchanges& group : given)
    for (auto& one : comm::make_thread_exchanges(2)) group.push_back(std::move(one));
  const Lockstep of_given(given), of_threads(2, 3);
  for (int replica = 0; replica < 2; ++replica)
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(of_given.exchange(replica, rank),
                given[static_cast<size_t>(rank)][static_cast<size_t>(replica)]);
      EXPECT_EQ(of_threads.exchange(replica, rank)->rank(), replica);
    }
  EXPECT_NE(of_threads.exchange(0, 0), of_threads.exchange(0, 2));
}

// Whichever rank of whichever replica waits.
TEST(LockstepExchanges, AllEndWithTheGroup) {
  Lockstep lockstep(2, 3);
  lockstep.end("replica 1: no room");
  for (int replica = 0; replica < 2; ++replica)
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_THROW(lockstep.exchange(replica, rank)->least(0), comm::GroupEnded);
}

TEST(SideBySide, ThrowsWhatOneThrewOfItself) {
  Lockstep lockstep(3);
  std::atomic<int> told = 0;
  std::string said;
  try {
    side_by_side(
        3,
        [&](size_t i) {
          if (i == 1) throw std::runtime_error("cannot");
          lockstep.exchange(static_cast<int>(i))->least(0);
        },
        [&](size_t i, const std::string& why) {
          ++told;
          lockstep.end("replica " + std::to_string(i) + ": " + why);
        });
  } catch (const std::exception& error) {
    said = error.what();
  }
  EXPECT_EQ(said, "cannot");
  EXPECT_EQ(told, 3) << "the others were made to leave";
}

}  // namespace
}  // namespace skiff::engine
