// engine/ledger.h -- how long each part of start-up took.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/seconds.h"

namespace skiff::engine {

class Ledger {
 public:
  // Books the time since the last entry, or since the start, under `what`.
  void close(std::string_view what) {
    const auto now = Clock::now();
    text_ += fmt::format("{} {:.3f} s, ", what, seconds(now - last_));
    last_ = now;
  }
  // Returns one line: "config 0.001 s, ..., total 1.234 s".
  std::string text() const {
    return text_ + fmt::format("total {:.3f} s", seconds(last_ - start_));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now(), last_ = start_;
  std::string text_;
};

}  // namespace skiff::engine
