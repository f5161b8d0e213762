// text/char_pairs.h -- records which two characters are neighbours in some token. Where two
// characters never are, no merge can cross, so a long text can be cut there and its parts encoded
// on their own.
#pragma once
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace skiff::text {

// Immutable once filled. Pairs beyond ASCII are kept by their hash, so a pair may rarely seem
// joined that is not, which costs time and changes no result.
class CharPairs {
 public:
  CharPairs() : others_(kOthers / 64) {}
  // Adds the pairs of a token. It may be any bytes and begin or end inside a character.
  void add_token(std::string_view token);
  // Returns the end of the first part of `text` (valid UTF-8, not empty): the first place that no
  // token crosses, or the text's size.
  size_t first_part(std::string_view text) const;

 private:
  static constexpr size_t kOthers = 1 << 22;
  static size_t place(char32_t left, char32_t right);
  bool joined(char32_t left, char32_t right) const;

  std::bitset<size_t{128} * 128> ascii_;
  std::vector<uint64_t> others_;  // a bit set, indexed by hash
  // Holds pairs of one character's last byte and the next one's first byte, for tokens that hold
  // only some of the bytes of one of them.
  std::bitset<size_t{256} * 256> pieces_;
};

}  // namespace skiff::text
