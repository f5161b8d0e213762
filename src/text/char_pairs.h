// text/char_pairs.h -- which two characters stand side by side in some token: where none do, no
// merge can cross, and a long text falls into words that are encoded on their own.
#pragma once
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace skiff {

// Immutable once filled. Pairs beyond ASCII are kept by their hash, so that now and then two
// characters seem joined that are not, which costs time and changes nothing.
class CharPairs {
 public:
  CharPairs() : others_(kOthers / 64) {}
  // Any bytes; a token may begin or end inside a character.
  void add_token(std::string_view token);
  // The end of the first part of `text` (valid UTF-8, not empty): its size, or where no token
  // joins.
  size_t first_part(std::string_view text) const;

 private:
  static constexpr size_t kOthers = 1 << 22;
  static size_t place(char32_t left, char32_t right);
  bool joined(char32_t left, char32_t right) const;

  std::bitset<128 * 128> ascii_;
  std::vector<uint64_t> others_;  // bits
  // The last byte of one character and the first of the next, where a token holds only some of
  // the bytes of one of them.
  std::bitset<256 * 256> pieces_;
};

}  // namespace skiff
