#include "text/char_pairs.h"

#include "base/utf8.h"

namespace skiff {
namespace {

uint64_t pair_key(char32_t left, char32_t right) { return uint64_t{left} << 32 | right; }
bool both_ascii(char32_t left, char32_t right) { return (left | right) < 128; }

}  // namespace

void CharPairs::add_token(std::string_view token) {
  if (token.empty()) return;
  size_t at = 0;
  char32_t left = utf8_next(token, &at);
  while (at < token.size()) {
    const char32_t right = utf8_next(token, &at);
    if (both_ascii(left, right))
      ascii_.set(left * 128 + right);
    else
      others_.insert(pair_key(left, right));
    left = right;
  }
}

bool CharPairs::joined(char32_t left, char32_t right) const {
  return both_ascii(left, right) ? ascii_.test(left * 128 + right)
                                 : others_.contains(pair_key(left, right));
}

size_t CharPairs::first_part(std::string_view text) const {
  size_t at = 0;
  char32_t left = utf8_next(text, &at);
  while (at < text.size()) {
    size_t next = at;
    const char32_t right = utf8_next(text, &next);
    if (!joined(left, right)) return at;
    left = right;
    at = next;
  }
  return at;
}

}  // namespace skiff
