#include "apps/heap_trim.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

// Returns whether the environment sets this parameter of the allocator.
bool is_chosen(const char* variable, const char* tunable) {
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return std::getenv(variable) != nullptr || (tunables && std::strstr(tunables, tunable));
}

TrimSchedule::Memory memory_now() {
  return {.resident = resident_bytes(), .free = static_cast<int64_t>(mallinfo2().fordblks)};
}

}  // namespace

// A block as long as the threshold is mapped by itself and unmapped when freed. Without the second
// call that would be any block above 128 KiB.
void bound_heaps() {
  if (!is_chosen("MALLOC_ARENA_MAX", "arena_max")) mallopt(M_ARENA_MAX, kArenas);
  if (is_chosen("MALLOC_TRIM_THRESHOLD_", "trim_threshold")) return;
  mallopt(M_TRIM_THRESHOLD, kMaxFreeEnd);
  if (!is_chosen("MALLOC_MMAP_THRESHOLD_", "mmap_threshold"))
    mallopt(M_MMAP_THRESHOLD, kMaxFreeEnd);
}

bool TrimSchedule::is_due(const Memory& memory, Time now) {
  if (!least_) least_ = memory;
  least_->resident = std::min(least_->resident, memory.resident);
  least_->free = std::min(least_->free, memory.free);
  const bool is_more =
      memory.resident - least_->resident >= kMuch || memory.free - least_->free >= kMuch;
  return is_more && now >= next_;
}

void TrimSchedule::trimmed(const Memory& before, const Memory& after, Time now) {
  const bool helped = before.resident - after.resident >= kMuch;
  pause_ = helped ? kSoon : std::min(2 * pause_, kLate);
  least_ = after;
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
    const TrimSchedule::Memory before = memory_now();
    if (!schedule.is_due(before, std::chrono::steady_clock::now())) continue;
    malloc_trim(0);
    schedule.trimmed(before, memory_now(), std::chrono::steady_clock::now());
  }
}

}  // namespace skiff::apps
