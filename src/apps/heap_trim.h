// apps/heap_trim.h -- memory that large requests have freed goes back to the system.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace skiff {

// When a trim is worth its time. The allocator keeps what is freed, and does not say how much of it
// fills whole pages; so a trim is tried while the process holds clearly more than it once did with,
// at growing intervals where that does not help. Not thread-safe.
class TrimSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t kMuch = 4 << 20;  // bytes
  static constexpr std::chrono::seconds kSoon{2}, kLate{64};

  // Given the resident bytes now.
  bool is_due(int64_t resident, Time now);
  // After a trim that was due.
  void trimmed(int64_t before, int64_t after, Time now);

 private:
  int64_t least_ = INT64_MAX, seen_ = 0;
  std::chrono::seconds pause_ = kSoon;
  Time next_{};
};

// Looks every second, on a thread of its own.
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

}  // namespace skiff
