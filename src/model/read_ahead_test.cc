#include "model/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

namespace skiff::model {
namespace {

TEST(ReadAhead, EveryJobIsDoneOnceBeforeItIsTaken) {
  for (int threads : {1, 2, 8}) {
    for (size_t window : {size_t{1}, size_t{3}, size_t{200}}) {
      constexpr size_t kJobs = 100;
      std::vector<std::atomic<int>> done(kJobs);
      ReadAhead ahead(kJobs, threads, window, [&](size_t job) { ++done[job]; });
      for (size_t job = 0; job < kJobs; ++job) {
        ahead.next();
        EXPECT_EQ(done[job], 1);
        ahead.give_back();
      }
    }
  }
}

// A job's memory belongs to it until it is given back.
TEST(ReadAhead, NoJobBeginsBeforeItsPlaceIsGivenBack) {
  constexpr size_t kJobs = 300, kWindow = 4;
  std::vector<size_t> ring(kWindow, kJobs);
  ReadAhead ahead(kJobs, 8, kWindow, [&](size_t job) { ring[job % kWindow] = job; });
  ahead.next();
  for (size_t job = 1; job < kJobs; ++job) {
    ahead.next();
    EXPECT_EQ(ring[(job - 1) % kWindow], job - 1);
    EXPECT_EQ(ring[job % kWindow], job);
    ahead.give_back();
  }
}

TEST(ReadAhead, TheFirstFailureInOrderIsTheOneThatShows) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> later_failed = false;
    ReadAhead ahead(10, 4, 10, [&](size_t job) {
      if (job == 5) {
        later_failed = true;
        throw std::runtime_error("job 5");
      }
      if (job != 3) return;
      while (!later_failed) std::this_thread::yield();
      throw std::runtime_error("job 3");
    });
    for (size_t job = 0; job < 3; ++job) ahead.next();
    try {
      ahead.next();
      ADD_FAILURE() << "no failure";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "job 3");
    }
  }
}

TEST(ReadAhead, MayBeLeftBeforeTheEnd) {
  std::atomic<int> done = 0;
  {
    ReadAhead ahead(1000, 3, 5, [&](size_t) { ++done; });
    ahead.next();
  }
  EXPECT_GE(done, 1);
  EXPECT_LE(done, 5);
}

}  // namespace
}  // namespace skiff::model
