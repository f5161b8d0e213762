#include "apps/heap_trim.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace skiff::apps {
namespace {

// Returns the resident bytes, or 0 if they cannot be read.
int64_t resident_bytes() {
  long pages = 0, resident = 0;
  std::FILE* in = std::fopen("/proc/self/statm", "r");
  if (!in) return 0;
  if (std::fscanf(in, "%ld %ld", &pages, &resident) != 2) resident = 0;
  std::fclose(in);
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

}  // namespace

// A large change since the last trim may mean that memory was freed since.
bool TrimSchedule::is_due(int64_t resident, Time now) {
  least_ = std::min(least_, resident);
  if (resident - least_ < kMuch) return false;
  if (std::abs(resident - seen_) >= kMuch) {
    seen_ = resident;
    pause_ = kSoon;
    next_ = std::min(next_, now + pause_);
  }
  return now >= next_;
}

void TrimSchedule::trimmed(int64_t before, int64_t after, Time now) {
  const bool helped = before - after >= (before - least_) / 10;
  pause_ = helped ? kSoon : std::min(2 * pause_, kLate);
  least_ = std::min(least_, after);
  seen_ = after;
  next_ = now + pause_;
}

HeapTrimmer::HeapTrimmer() : thread_([this] { run(); }) {}

HeapTrimmer::~HeapTrimmer() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void HeapTrimmer::run() {
  pthread_setname_np(pthread_self(), "heap trim");
  TrimSchedule schedule;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::seconds(1), [this] { return stopped_; })) {
    const int64_t before = resident_bytes();
    if (!schedule.is_due(before, std::chrono::steady_clock::now())) continue;
    malloc_trim(0);
    schedule.trimmed(before, resident_bytes(), std::chrono::steady_clock::now());
  }
}

}  // namespace skiff::apps
