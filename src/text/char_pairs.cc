#include "text/char_pairs.h"

#include "base/utf8.h"
#include "text/text_hash.h"
#include "text/utf8_fast.h"

namespace skiff::text {
namespace {

bool both_ascii(char32_t left, char32_t right) { return (left | right) < 128; }
bool starts_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

// Returns the character that `bytes` encode, if they encode exactly one.
bool is_one_character(std::string_view bytes, char32_t* c) {
  size_t end = 0;
  if (bytes.empty() || utf8_length(bytes) != static_cast<int>(bytes.size())) return false;
  *c = utf8_next(bytes, &end);
  return true;
}

}  // namespace

size_t CharPairs::place(char32_t left, char32_t right) {
  return hash_mix(uint64_t{left} << 32 | right) >> 20 & (kOthers - 1);
}

void CharPairs::add_token(std::string_view token) {
  size_t left_begin = 0;
  for (size_t at = 1; at < token.size(); ++at) {
    if (!starts_character(token[at])) continue;
    size_t end = at + 1;
    while (end < token.size() && !starts_character(token[end])) ++end;
    char32_t left, right;
    if (!is_one_character(token.substr(left_begin, at - left_begin), &left) ||
        !is_one_character(token.substr(at, end - at), &right))
      pieces_.set(size_t{static_cast<uint8_t>(token[at - 1])} * 256 +
                  static_cast<uint8_t>(token[at]));
    else if (both_ascii(left, right))
      ascii_.set(left * 128 + right);
    else
      others_[place(left, right) / 64] |= uint64_t{1} << place(left, right) % 64;
    left_begin = at;
  }
}

bool CharPairs::joined(char32_t left, char32_t right) const {
  if (both_ascii(left, right)) return ascii_.test(left * 128 + right);
  const size_t at = place(left, right);
  return (others_[at / 64] >> at % 64 & 1) != 0;
}

size_t CharPairs::first_part(std::string_view text) const {
  size_t at = 0;
  char32_t left = utf8_take(text, &at);
  while (at < text.size()) {
    size_t next = at;
    const char32_t right = utf8_take(text, &next);
    if (!joined(left, right) && !pieces_.test(size_t{static_cast<uint8_t>(text[at - 1])} * 256 +
                                              static_cast<uint8_t>(text[at])))
      return at;
    left = right;
    at = next;
  }
  return at;
}

}  // namespace skiff::text
