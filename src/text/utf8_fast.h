// text/utf8_fast.h -- decodes text that is known to be valid UTF-8, for inner loops.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace skiff::text {

// Returns the code point at `*at` (< text.size()) and advances it. For invalid bytes the value is
// arbitrary, but nothing is read past the end.
inline char32_t utf8_take(std::string_view text, size_t* at) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + *at;
  const size_t left = text.size() - *at;
  if (p[0] < 0x80) {
    *at += 1;
    return p[0];
  }
  if (p[0] < 0xE0 && left >= 2) {
    *at += 2;
    return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  }
  if (p[0] < 0xF0 && left >= 3) {
    *at += 3;
    return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  }
  if (left >= 4) {
    *at += 4;
    return ((p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu)) %
           0x110000u;
  }
  *at += 1;
  return 0xFFFD;
}

}  // namespace skiff::text
