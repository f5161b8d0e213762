// apps/heap_trim.h -- returns memory that large requests have freed to the system.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace skiff::apps {

// Decides when a trim is worth its time. The allocator keeps freed memory and does not report how
// much of it fills whole pages, so a trim is tried while the process holds clearly more than its
// smallest size, at growing intervals where trimming does not help. Not thread-safe.
class TrimSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t kMuch = 4 << 20;  // bytes
  static constexpr std::chrono::seconds kSoon{2}, kLate{64};

  // Returns whether a trim is due, given the resident bytes now.
  bool is_due(int64_t resident, Time now);
  // Records the resident bytes after a trim that was due.
  void trimmed(int64_t before, int64_t after, Time now);

 private:
  int64_t least_ = INT64_MAX, seen_ = 0;
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
