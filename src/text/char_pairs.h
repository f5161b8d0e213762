// text/char_pairs.h -- which two characters stand side by side in some token: where none do, no
// merge can cross, and a long text falls into words that are encoded on their own.
#pragma once
#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_set>

namespace skiff {

// Immutable once filled.
class CharPairs {
 public:
  void add_token(std::string_view token);
  // The end of the first part of `text` (not empty): its size, or where no token joins.
  size_t first_part(std::string_view text) const;

 private:
  bool joined(char32_t left, char32_t right) const;

  std::bitset<128 * 128> ascii_;
  std::unordered_set<uint64_t> others_;
};

}  // namespace skiff
