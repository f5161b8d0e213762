// base/utf8.h -- the few things one must know about UTF-8 (RFC 3629).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace skiff {

// Bytes of the character at the start of `text`: 1..4; 0 if `text` ends inside a character that
// is valid so far (or is empty); -1 if the first byte cannot start or continue a valid character.
int utf8_length(std::string_view text);

bool is_valid_utf8(std::string_view text);

// The code point at `*pos`, advancing it. Invalid bytes give U+FFFD and advance by one.
char32_t utf8_next(std::string_view text, size_t* pos);

void utf8_append(std::string& out, char32_t code_point);

// Invalid sequences replaced by U+FFFD, as Python's errors="replace" does.
std::string utf8_sanitized(std::string_view bytes);

}  // namespace skiff
