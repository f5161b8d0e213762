// serve/service/drain_rate.h -- how fast a backlog drains, measured only while there is one.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>

namespace skiff::service {

// An exponentially fading mean over about the last 30 seconds with a backlog. Times without a
// backlog do not count, because they do not show how fast one drains; so the rate of the last
// backlog is still known when the next begins. Not thread-safe.
class DrainRate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr double kFadeSeconds = 30;

  // Says whether there is a backlog from now on.
  void set_busy(Time now, bool busy) {
    advance(now);
    busy_ = busy;
  }
  void drained(Time now, double amount) {
    advance(now);
    amount_ += amount;
  }
  // Seconds to drain `amount`. If nothing has been drained yet, the time that the backlog has
  // lasted: the best guess without an event.
  double seconds_for(Time now, double amount) {
    advance(now);
    return amount_ > 0 ? amount * seconds_ / amount_ : seconds_;
  }

 private:
  void advance(Time now) {
    const double passed = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    if (!busy_ || passed <= 0) return;
    const double kept = std::exp(-passed / kFadeSeconds);
    amount_ *= kept;
    seconds_ = seconds_ * kept + kFadeSeconds * (1 - kept);
  }

  Time last_{};
  bool busy_ = false;
  double amount_ = 0, seconds_ = 0;
};

}  // namespace skiff::service
