#include "apps/heap_trim.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace skiff::apps {
namespace {

using std::chrono::seconds;
constexpr int64_t kGiB = 1 << 30, kMuch = TrimSchedule::kMuch;
const TrimSchedule::Time kStart = std::chrono::steady_clock::now();

TEST(TrimSchedule, NothingIsDueWhileLittleChanges) {
  TrimSchedule schedule;
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(schedule.is_due({kGiB + i * (kMuch / 100), (i * 7 % 100) * (kMuch / 100)},
                                 kStart + seconds(i)));
}

TEST(TrimSchedule, WhatGrewIsTrimmedAtOnceAndThenLeftAlone) {
  TrimSchedule schedule;
  EXPECT_FALSE(schedule.is_due({kGiB, 0}, kStart));
  EXPECT_TRUE(schedule.is_due({5 * kGiB, 0}, kStart + seconds(1)));
  schedule.trimmed({5 * kGiB, 0}, {kGiB + 1000, 4 * kGiB}, kStart + seconds(1));
  for (int i = 2; i < 200; ++i)
    EXPECT_FALSE(schedule.is_due({kGiB + 1000, 4 * kGiB}, kStart + seconds(i)));
}

// A KV pool that has been touched stays resident for good: one trim is tried.
TEST(TrimSchedule, WhatIsInUseIsNotTriedAgain) {
  TrimSchedule schedule;
  schedule.is_due({kGiB, 0}, kStart);
  int trims = 0;
  for (int i = 1; i <= 600; ++i)
    if (schedule.is_due({5 * kGiB, 1000}, kStart + seconds(i))) {
      ++trims;
      schedule.trimmed({5 * kGiB, 1000}, {5 * kGiB, 1000}, kStart + seconds(i));
    }
  EXPECT_EQ(trims, 1);
}

// Memory is freed while the process holds as much as before, and a trim before did not help.
TEST(TrimSchedule, WhatIsFreedLaterIsTrimmedSoon) {
  TrimSchedule schedule;
  schedule.is_due({kGiB, 0}, kStart);
  EXPECT_TRUE(schedule.is_due({5 * kGiB, 0}, kStart + seconds(1)));
  schedule.trimmed({5 * kGiB, 0}, {5 * kGiB, 0}, kStart + seconds(1));
  for (int i = 2; i < 100; ++i) EXPECT_FALSE(schedule.is_due({5 * kGiB, 0}, kStart + seconds(i)));
  EXPECT_TRUE(schedule.is_due({5 * kGiB, kMuch}, kStart + seconds(100)));
}

// What a trim has returned may be taken and freed again: neither number is then above what it was
// after the trim.
TEST(TrimSchedule, WhatIsTakenAgainIsTrimmedAgain) {
  TrimSchedule schedule;
  schedule.is_due({kGiB, 0}, kStart);
  schedule.is_due({5 * kGiB, 0}, kStart + seconds(1));
  schedule.trimmed({5 * kGiB, 0}, {kGiB, 4 * kGiB}, kStart + seconds(1));
  EXPECT_FALSE(schedule.is_due({kGiB, 2 * kGiB}, kStart + seconds(50)));
  EXPECT_TRUE(schedule.is_due({kGiB, 4 * kGiB}, kStart + seconds(51)));
}

// Trimming costs time, so it is tried less often while what grows is in use; what is freed then
// still comes back within kLate.
TEST(TrimSchedule, WhatDoesNotHelpIsTriedLessOften) {
  TrimSchedule schedule;
  TrimSchedule::Memory memory{kGiB, 0};
  schedule.is_due(memory, kStart);
  std::vector<int> trims;
  for (int i = 1; i <= 600; ++i) {
    memory.resident += kMuch;
    if (!schedule.is_due(memory, kStart + seconds(i))) continue;
    trims.push_back(i);
    schedule.trimmed(memory, memory, kStart + seconds(i));
  }
  EXPECT_EQ(std::vector(trims.begin(), trims.begin() + 5), (std::vector{1, 3, 7, 11, 15}));
  EXPECT_EQ(std::ssize(trims), 151);
  memory.free = memory.resident;
  int waited = 1;
  while (!schedule.is_due(memory, kStart + seconds(600 + waited))) ++waited;
  EXPECT_LE(seconds(waited), TrimSchedule::kLate);
  // Once it helps, the next one is not far.
  schedule.trimmed(memory, {kGiB, kGiB}, kStart + seconds(700));
  EXPECT_TRUE(schedule.is_due({2 * kGiB, 0}, kStart + seconds(701)));
}

// The arenas that the allocator has made.
int arenas() {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  malloc_info(0, out);
  std::fclose(out);
  int count = 0;
  for (const char* at = text; (at = std::strstr(at, "<heap nr=")); ++at) ++count;
  std::free(text);
  return count;
}

// In a process of its own: arenas stay as many as they were.
TEST(HeapArenasDeathTest, ThreadsShareThem) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    bound_heaps();
    std::barrier all(8);
    std::vector<std::jthread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&all] {
        std::vector<int> memory(100);
        all.arrive_and_wait();
      });
    threads.clear();
    std::exit(arenas());
  };
  // The allocator of sanitizers has none but the first.
  const auto ends_with = [](int count) {
    return [count](int status) {
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      return code == count || code == 1;
    };
  };
  unsetenv("MALLOC_ARENA_MAX");
  EXPECT_EXIT(run(), ends_with(kArenas), "");
  setenv("MALLOC_ARENA_MAX", "3", 1);
  EXPECT_EXIT(run(), ends_with(3), "");
  unsetenv("MALLOC_ARENA_MAX");
}

// Takes `bytes` in blocks of 64 KiB.
std::vector<std::vector<char>> blocks_of(size_t bytes) {
  std::vector<std::vector<char>> blocks(bytes >> 16);
  for (std::vector<char>& block : blocks) block.assign(1 << 16, 'x');
  return blocks;
}

int resident_mib() {
  long pages = 0, resident = 0;
  std::FILE* in = std::fopen("/proc/self/statm", "r");
  if (std::fscanf(in, "%ld %ld", &pages, &resident) != 2) resident = 0;
  std::fclose(in);
  return static_cast<int>(resident * sysconf(_SC_PAGESIZE) >> 20);
}

// Returns how many MiB more are resident after a thread with an arena of its own has freed 40, and
// all has been trimmed.
int kept_after_a_burst() {
  int before = 0, after = 0;
  std::jthread([&] {
    before = resident_mib();
    std::free(std::calloc(30 << 20, 1));  // raises the threshold where it is not fixed
    blocks_of(40 << 20).clear();
    malloc_trim(0);
    after = resident_mib();
  }).join();
  return after - before;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsFreedMemory = true;
#else
constexpr bool kKeepsFreedMemory = false;
#endif

// In a process of its own, which keeps what it was told.
TEST(HeapArenasDeathTest, TheEndOfAnArenaIsReturned) {
  if (kKeepsFreedMemory) GTEST_SKIP() << "sanitizers' allocators keep freed memory";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        bound_heaps();
        std::exit(kept_after_a_burst() > 6);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace skiff::apps
