// apps/heap_trim.h -- bounds the heaps of a server, and returns memory that large requests have
// freed to the system.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

namespace skiff::apps {

// glibc gives threads heaps ("arenas") of their own, up to eight for each core. Memory that was
// freed in one arena serves no other, so what a burst leaves behind grows with the number of cores.
// Threads share kArenas instead, unless the environment says how many (MALLOC_ARENA_MAX or
// GLIBC_TUNABLES). A trim leaves the free end of every arena but the first alone. Freeing returns
// that end once it is longer than a threshold, which glibc raises up to 64 MiB; here it stays at
// kMaxFreeEnd, unless the environment says otherwise. Called before the first thread starts.
constexpr int kArenas = 2, kMaxFreeEnd = 4 << 20;
void bound_heaps();

// Decides when a trim is worth its time. The allocator keeps freed memory and does not report how
// much of it fills whole pages, so a trim is tried when it has more free bytes, or the process more
// resident ones, than at some time since the last trim: less often where trimming does not help,
// and no more once nothing changes. Not thread-safe.
class TrimSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t kMuch = 4 << 20;  // bytes
  static constexpr std::chrono::seconds kSoon{1}, kLate{4};

  // In bytes: what is resident, and what the allocator keeps for later, resident or not.
  struct Memory {
    int64_t resident = 0, free = 0;
  };

  // Returns whether a trim is due, given the memory now.
  bool is_due(const Memory& memory, Time now);
  // Records the memory before and after a trim that was due.
  void trimmed(const Memory& before, const Memory& after, Time now);

 private:
  std::optional<Memory> least_;  // since the last trim
  std::chrono::seconds pause_ = kSoon;
  Time next_{};
};

// Checks every second, on a thread of its own.
class HeapTrimmer {
 public:
  HeapTrimmer();
  ~HeapTrimmer();

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace skiff::apps
