// text/char_tokens.h -- looks up the token of a single character without hashing.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/token_index.h"

namespace skiff::text {

// Immutable; safe from any thread.
class CharTokens {
 public:
  CharTokens() = default;
  // Built from all tokens that are a single character.
  explicit CharTokens(const TokenIndex& vocab);
  // -1: the character is no token.
  int32_t find(char32_t c) const {
    return c / kPage < pages_.size() ? tokens_[pages_[c / kPage] * kPage + c % kPage] : -1;
  }

 private:
  static constexpr size_t kPage = 256, kCharacters = 0x110000;
  std::vector<uint32_t> pages_;  // page 0 is empty
  std::vector<int32_t> tokens_;
};

}  // namespace skiff::text
