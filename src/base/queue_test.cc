#include "base/queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/seconds.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

TEST(Queue, DeliversInOrderAndEndsWhenClosed) {
  Queue<int> queue;
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) queue.push(i);
    queue.close();
  });
  int expected = 0;
  while (auto value = queue.pop()) ASSERT_EQ(*value, expected++);
  EXPECT_EQ(expected, 1000);
  EXPECT_TRUE(queue.drain(/*wait=*/true).empty());
  producer.join();
}

TEST(Queue, DrainUntilEndsAtItsTime) {
  Queue<int> queue;
  const auto start = Clock::now();
  EXPECT_TRUE(queue.drain_until(start + 20ms).empty());
  EXPECT_GE(Clock::now() - start, 20ms);
  EXPECT_TRUE(queue.drain_until(start).empty()) << "a time that has passed";
  queue.push(1);
  queue.push(2);
  EXPECT_EQ(queue.drain_until(start), (std::vector<int>{1, 2})) << "what is there is always taken";
}

TEST(Queue, DrainUntilEndsWithAValue) {
  Queue<int> queue;
  std::thread sender([&] {
    std::this_thread::sleep_for(10ms);
    queue.push(3);
  });
  const auto start = Clock::now();
  EXPECT_EQ(queue.drain_until(start + 60s), std::vector<int>{3});
  EXPECT_LT(seconds_since(start), 30);
  sender.join();
}

TEST(Queue, DrainUntilEndsWhenTheQueueIsClosed) {
  Queue<int> queue;
  std::thread closer([&] {
    std::this_thread::sleep_for(10ms);
    queue.push(4);
    queue.close();
  });
  const auto start = Clock::now();
  while (!queue.drain_until(start + 60s).empty()) continue;
  EXPECT_LT(seconds_since(start), 30);
  closer.join();
}

}  // namespace
}  // namespace skiff
