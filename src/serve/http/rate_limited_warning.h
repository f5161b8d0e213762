// serve/http/rate_limited_warning.h -- a warning that a client may cause as often as it likes, and
// that fills no log. Private to the HTTP server.
#pragma once
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.h"

namespace skiff::http {

// Logs one kind of warning at most every 10 seconds. Thread-safe.
class RateLimitedWarning {
 public:
  void log(const std::string& what) {
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) {
      ++suppressed_;
      return;
    }
    next_ = now + kEvery;
    if (const int suppressed = std::exchange(suppressed_, 0))
      spdlog::warn("{} (and {} more times since the last such line)", what, suppressed);
    else
      spdlog::warn("{}", what);
  }

 private:
  static constexpr std::chrono::seconds kEvery{10};
  std::mutex mutex_;
  std::chrono::steady_clock::time_point next_{};  // guarded by mutex_
  int suppressed_ = 0;                            // guarded by mutex_
};

}  // namespace skiff::http
