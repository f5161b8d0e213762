#include "comm/meeting.h"

#include <chrono>

#include "base/processors.h"
#include "comm/communicator.h"

namespace skiff::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than ranks with equal work are apart, and than a sleeping thread takes to wake; short
// enough that a rank whose peers compute for long leaves its processor to others.
constexpr auto kSpin = std::chrono::microseconds(100);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Meeting::Meeting(int size) : size_(size), spins_(usable_processors() >= size) {}

bool Meeting::is_over(uint32_t round) const { return round_ != round || ended_; }

// A wait in the kernel costs more than most of what ranks do between two meetings.
void Meeting::await_end_of(uint32_t round) {
  for (const auto end = Clock::now() + kSpin; spins_ && !is_over(round) && Clock::now() < end;)
    for (int i = 0; i < 16 && !is_over(round); ++i) pause();
  while (!is_over(round)) round_.wait(round);
}

// `round_` is read before a thread counts itself: nobody can go on to the next round before.
void Meeting::arrive() {
  if (ended_) leave();
  const uint32_t round = round_;
  if (arrived_.fetch_add(1) + 1 == size_) {
    arrived_ = 0;
    ++round_;
    round_.notify_all();
  } else {
    await_end_of(round);
  }
  if (ended_) leave();
}

// The round changes so that threads wake; nobody leaves a meeting that has ended without a throw.
void Meeting::end(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    why_ = why;
    ended_ = true;
  }
  ++round_;
  round_.notify_all();
}

void Meeting::leave() {
  std::lock_guard lock(mutex_);
  throw GroupEnded(why_);
}

}  // namespace skiff::comm
