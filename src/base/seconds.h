// base/seconds.h -- a duration as a floating-point number of seconds.
#pragma once
#include <chrono>

namespace skiff {

template <class Rep, class Period>
constexpr double seconds(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::duration<double>(duration).count();
}

// The seconds from `start` until now.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return seconds(std::chrono::steady_clock::now() - start);
}

}  // namespace skiff
