// engine/ledger.h -- where the time of starting up went.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/seconds.h"

namespace skiff::engine {

class Ledger {
 public:
  // The time since the last entry, or since the start, was spent on `what`.
  void close(std::string_view what) {
    const auto now = Clock::now();
    text_ += fmt::format("{} {:.3f} s, ", what, seconds(now - last_));
    last_ = now;
  }
  // One line: "config 0.001 s, ..., total 1.234 s".
  std::string text() const {
    return text_ + fmt::format("total {:.3f} s", seconds(last_ - start_));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now(), last_ = start_;
  std::string text_;
};

}  // namespace skiff::engine
