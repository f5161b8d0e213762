// text/text_hash.h -- a fast hash of short strings, for tables that live in memory only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace skiff::text {

inline uint64_t hash_mix(uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 32;
}

// Reads 1 to 8 bytes as an integer; missing bytes are zero.
inline uint64_t load_bytes(const char* p, size_t count) {
  uint64_t eight;
  uint32_t low, high;
  if (count == 8) {
    std::memcpy(&eight, p, 8);
    return eight;
  }
  if (count >= 4) {
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + count - 4, 4);
    return low | uint64_t{high} << 8 * (count - 4);
  }
  const auto byte = [&](size_t i) { return uint64_t{static_cast<uint8_t>(p[i])} << 8 * i; };
  return byte(0) | byte(count / 2) | byte(count - 1);
}

inline uint64_t hash_text(std::string_view text) {
  uint64_t hash = text.size();
  const char* p = text.data();
  size_t left = text.size();
  for (; left > 8; p += 8, left -= 8) hash = hash_mix(hash ^ load_bytes(p, 8));
  return left > 0 ? hash_mix(hash_mix(hash ^ load_bytes(p, left))) : hash_mix(hash);
}

}  // namespace skiff::text
