// text/char_classes.h -- the character classes that split patterns of tokenizers use, as one table
// lookup.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace skiff::text {

// General categories of Unicode, grouped; a character has one of them or none.
enum CharClass : uint8_t {
  kUpper = 1,     // Lu, Lt
  kLower = 2,     // Ll
  kCaseless = 4,  // Lm, Lo
  kMark = 8,      // M
  kNumber = 16,   // N
  kSign = 32,     // P, S
  kSpace = 64,    // \s of regex_dialect.h
  kBreak = 128,   // \r and \n; never without kSpace
  kLetter = kUpper | kLower | kCaseless,
};

// Immutable; safe from any thread. The classes are those of the regex engine, asked once per
// process, so a pattern matches the same with the table as without it.
class CharClasses {
 public:
  static const CharClasses& get();
  uint8_t of(char32_t c) const {
    return classes_[size_t{blocks_[c / kBlock]} * kBlock + c % kBlock];
  }

 private:
  static constexpr size_t kBlock = 128, kCharacters = 0x110000;
  CharClasses();
  std::array<uint16_t, kCharacters / kBlock> blocks_{};
  std::vector<uint8_t> classes_;  // equal blocks are stored once
};

}  // namespace skiff::text
