#include "engine/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace skiff::engine {
namespace {

constexpr double kMaxGrace = 5;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double StallClock::look(const Pulse& pulse, double now) {
  const bool moved = !looked_ || pulse.steps != steps_ || pulse.seconds_since_progress == 0;
  stalled_ = moved ? 0 : stalled_ + std::clamp(now - last_, 0.0, longest_gap_);
  looked_ = true;
  steps_ = pulse.steps;
  last_ = now;
  // Work that arrived after the last poll has waited for less than `stalled_`.
  return std::min(stalled_, pulse.seconds_since_progress);
}

Watchdog::Watchdog(double limit, Hooks hooks)
    : limit_(limit),
      poll_(std::clamp(limit / 20, 0.005, 1.0)),
      grace_(std::min(limit / 4, kMaxGrace)),
      hooks_(std::move(hooks)) {
  SKIFF_CHECK(limit > 0);
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Returns false once the watchdog is to end.
bool Watchdog::sleep() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(poll_),
                            [this] { return stopped_; });
}

void Watchdog::run() {
  pthread_setname_np(pthread_self(), "watchdog");
  std::vector<StallClock> clocks;
  bool stalled = false;
  while (sleep()) {
    const std::vector<Pulse> pulses = hooks_.pulses();
    const double now = steady_seconds();
    clocks.resize(pulses.size(), StallClock(2 * poll_));
    double seconds = 0;
    for (size_t i = 0; i < pulses.size(); ++i)
      seconds = std::max(seconds, clocks[i].look(pulses[i], now));
    if (stalled && seconds >= limit_ + grace_) return hooks_.end();
    if (stalled == (seconds >= limit_)) continue;
    stalled = !stalled;
    hooks_.stalled(stalled);
    if (stalled) hooks_.report(seconds);
  }
}

}  // namespace skiff::engine
