#include "capi/ending.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace skiff::capi {
namespace {

using std::chrono::seconds, std::chrono::milliseconds;

TEST(EndingTest, WorkThatReturnsIsJoined) {
  Ending ending;
  std::atomic<bool> done{false};
  EXPECT_EQ(ending.run([&] { done = true; }, seconds(60)), Ending::Met::kOver);
  EXPECT_TRUE(done);
}

TEST(EndingTest, TheDeviceIsLostDuringTheJoin) {
  Ending ending;
  std::promise<void> never;
  const auto begin = std::chrono::steady_clock::now();
  std::thread engine([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ending.give_up();
  });
  auto end = never.get_future().share();
  EXPECT_EQ(ending.run([end] { end.wait(); }, seconds(60)), Ending::Met::kGivenUp);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  engine.join();
  never.set_value();
}

TEST(EndingTest, AHangThatNobodyReportsHasABound) {
  Ending ending;
  std::promise<void> never;
  auto end = never.get_future().share();
  EXPECT_EQ(ending.run([end] { end.wait(); }, milliseconds(50)), Ending::Met::kTimeUp);
  never.set_value();
}

TEST(EndingTest, AHangIsNoEndUntilItsWorkReturns) {
  Ending ending;
  EXPECT_EQ(ending.met(), Ending::Met::kOver);
  std::promise<void> opener;
  auto gate = opener.get_future().share();
  EXPECT_EQ(ending.run([gate] { gate.wait(); }, milliseconds(50)), Ending::Met::kTimeUp);
  EXPECT_EQ(ending.met(), Ending::Met::kTimeUp);
  opener.set_value();
  while (ending.met() != Ending::Met::kOver) std::this_thread::yield();
}

}  // namespace
}  // namespace skiff::capi
