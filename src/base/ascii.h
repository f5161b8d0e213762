// base/ascii.h -- finding ASCII eight bytes at a time.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

namespace skiff {

// Returns whether eight bytes follow from `at` on and all of them are ASCII.
inline bool eight_ascii(std::string_view text, size_t at) {
  uint64_t bytes;
  if (text.size() - at < sizeof bytes) return false;
  std::memcpy(&bytes, text.data() + at, sizeof bytes);
  return (bytes & 0x8080808080808080u) == 0;
}

}  // namespace skiff
