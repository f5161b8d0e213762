// capi/unix_time.h -- the time of day as events carry it.
#pragma once
#include <chrono>

namespace skiff::capi {

// Seconds since 1970, with their fraction.
inline double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace skiff::capi
