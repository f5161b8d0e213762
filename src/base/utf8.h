// base/utf8.h -- checking, reading, writing and repairing UTF-8 (RFC 3629).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace skiff {

// Returns the number of bytes of the character at the start of `text`, 1 to 4; 0 if `text` is empty
// or ends inside a character that is valid so far; -1 if no valid character starts there.
int utf8_length(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Returns the code point at `*pos` and advances it. An invalid byte gives U+FFFD and advances by
// one.
char32_t utf8_next(std::string_view text, size_t* pos);

void utf8_append(std::string& out, char32_t code_point);

// Returns the text with invalid sequences replaced by U+FFFD, as Python's errors="replace" does.
std::string utf8_sanitized(std::string_view bytes);

}  // namespace skiff
