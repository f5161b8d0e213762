#include "ops/cpu/threadpool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <new>

namespace skiff::cpu {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceAndWaitsForAll) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      pool.parallel_for(tasks, [&](int64_t task, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        ++runs[static_cast<size_t>(task)];
      });
      for (const auto& n : runs) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, AStretchIsEachTaskOnceInRisingOrder) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      std::vector<int64_t> order;  // the order of a single thread
      pool.parallel_stretches(tasks, [&](int64_t task, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        ++runs[static_cast<size_t>(task)];
        if (threads == 1) order.push_back(task);
      });
      for (const auto& n : runs) EXPECT_EQ(n, 1);
      EXPECT_TRUE(std::ranges::is_sorted(order));
    }
  }
}

// Each of two threads waits in its first task for the other's, so that both have a share.
TEST(ThreadPool, EachThreadBeginsAShareOfItsOwn) {
  ThreadPool pool(2);
  std::atomic<int> begun = 0;
  std::atomic<int64_t> first[2] = {-1, -1};
  pool.parallel_stretches(100, [&](int64_t task, int thread) {
    int64_t none = -1;
    if (!first[thread].compare_exchange_strong(none, task)) return;
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(std::min(first[0].load(), first[1].load()), 0);
  EXPECT_EQ(std::max(first[0].load(), first[1].load()), 50);
}

// More tasks than one word of the pool's state counts.
TEST(ThreadPool, AnyNumberOfTasks) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    for (const int64_t tasks : {(int64_t{1} << 20) - 1, int64_t{1} << 20, (int64_t{1} << 21) + 3}) {
      std::vector<std::atomic<uint8_t>> runs(static_cast<size_t>(tasks));
      pool.parallel_for(tasks, [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
      EXPECT_EQ(std::ranges::count_if(runs, [](const auto& n) { return n == 1; }), tasks);
    }
  }
}

TEST(ThreadPool, WhatATaskThrowsComesOutWhenAllAreDone) {
  for (int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> ran = 0;
      EXPECT_THROW(pool.parallel_for(100,
                                     [&](int64_t task, int) {
                                       if (task % 10 == 7) throw std::bad_alloc();
                                       ++ran;
                                     }),
                   std::bad_alloc);
      const int after = ran;
      pool.parallel_for(10, [&](int64_t, int) { ++ran; });
      EXPECT_EQ(ran, after + 10) << "the pool works on, and nothing is thrown twice";
    }
  }
}

// Rounds follow each other at once, after a spin and after a sleep; a worker that is late for one
// round must not touch the next.
TEST(ThreadPool, RoundsDoNotMix) {
  ThreadPool pool(4);
  for (int round = 0; round < 3000; ++round) {
    const int64_t tasks = 2 + round % 5;
    std::vector<int> seen(static_cast<size_t>(tasks), -1);
    pool.parallel_for(tasks,
                      [&, round](int64_t task, int) { seen[static_cast<size_t>(task)] = round; });
    for (int value : seen) ASSERT_EQ(value, round);
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ThreadPool, TasksThatOutlastTheSpinAreWaitedFor) {
  ThreadPool pool(3);
  std::atomic<int> done{0};
  pool.parallel_for(6, [&](int64_t, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ++done;
  });
  EXPECT_EQ(done, 6);
}

double process_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

TEST(ThreadPool, IdleThreadsSleep) {
  ThreadPool pool(4);
  pool.parallel_for(100, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = process_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_seconds() - before, 0.02);
}

}  // namespace
}  // namespace skiff::cpu
