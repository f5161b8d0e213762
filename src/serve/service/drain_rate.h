// serve/service/drain_rate.h -- how fast something that waits gets done, measured only while it
// waits.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>

namespace skiff {

// A mean over about the last 30 seconds in which there was a backlog: older ones fade
// exponentially. Times without a backlog do not count, since they say nothing of how fast one
// drains; so the rate of the last rush is still known when the next begins. Not thread-safe.
class DrainRate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr double kFadeSeconds = 30;

  // From now on there is a backlog, or none.
  void set_busy(Time now, bool busy) {
    advance(now);
    busy_ = busy;
  }
  void drained(Time now, double amount) {
    advance(now);
    amount_ += amount;
  }
  // How long it takes to drain `amount`. Where nothing has been drained yet, as long as has been
  // waited already: the best guess from no event in a time.
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

}  // namespace skiff
