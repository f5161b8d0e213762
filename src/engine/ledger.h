// engine/ledger.h -- where the time of starting up went.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

namespace skiff {

class Ledger {
 public:
  // The time since the last entry, or since the start, was spent on `what`.
  void close(std::string_view what) {
    const auto now = Clock::now();
    text_ += fmt::format("{} {:.3f} s, ", what, seconds(last_, now));
    last_ = now;
  }
  // One line: "config 0.001 s, ..., total 1.234 s".
  std::string text() const { return text_ + fmt::format("total {:.3f} s", seconds(start_, last_)); }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double>(b - a).count();
  }
  Clock::time_point start_ = Clock::now(), last_ = start_;
  std::string text_;
};

}  // namespace skiff
