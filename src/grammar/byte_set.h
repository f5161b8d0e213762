// grammar/byte_set.h -- a set of bytes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace skiff::grammar {

class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet range(int low, int high) {
    ByteSet out;
    for (int byte = low; byte <= high; ++byte) out.add(static_cast<uint8_t>(byte));
    return out;
  }
  static constexpr ByteSet all() { return range(0, 255); }

  constexpr void add(uint8_t byte) { words_[byte >> 6] |= uint64_t{1} << (byte & 63); }
  constexpr bool has(uint8_t byte) const { return words_[byte >> 6] >> (byte & 63) & 1; }
  constexpr bool none() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  // The only member, or -1 where there are none or several.
  int only() const {
    int found = -1;
    for (size_t i = 0; i < 4; ++i) {
      if (words_[i] == 0) continue;
      if (found >= 0 || (words_[i] & (words_[i] - 1)) != 0) return -1;
      found = static_cast<int>(64 * i) + __builtin_ctzll(words_[i]);
    }
    return found;
  }

  constexpr ByteSet& operator|=(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words_[i] |= other.words_[i];
    return *this;
  }
  constexpr ByteSet& operator&=(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words_[i] &= other.words_[i];
    return *this;
  }
  friend constexpr ByteSet operator|(ByteSet a, const ByteSet& b) { return a |= b; }
  friend constexpr ByteSet operator&(ByteSet a, const ByteSet& b) { return a &= b; }
  friend constexpr bool operator==(const ByteSet&, const ByteSet&) = default;

  uint64_t hash() const {
    uint64_t h = 0;
    for (const uint64_t word : words_) h = (h ^ word) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h;
  }

 private:
  std::array<uint64_t, 4> words_{};
};

}  // namespace skiff::grammar
