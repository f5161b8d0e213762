// text/unicode.h -- the character properties and normal forms that tokenizers need.
#pragma once
#include <string>
#include <string_view>

namespace skiff::text {

enum class NormalForm { kNFC, kNFD, kNFKC, kNFKD };

// UAX #15. `text` must be valid UTF-8.
std::string normal_form(std::string_view text, NormalForm form);

// Maps every character to lower case by Unicode's default mapping, without context.
std::string lowercase(std::string_view text);

// White_Space of the Unicode character database (PropList.txt).
bool is_white_space(char32_t c);

// Returns whether `c` is a word character: a letter, mark, decimal digit or connector punctuation
// (UTS #18 \w).
bool is_word_character(char32_t c);

bool is_mark(char32_t c);             // general category M
bool is_nonspacing_mark(char32_t c);  // general category Mn
bool is_control(char32_t c);          // general categories Cc, Cf and Co

// Returns the end of the extended grapheme cluster (UAX #29) that begins at `begin` of valid UTF-8.
size_t grapheme_end(std::string_view text, size_t begin);

// Returns the code point that ends at `end` (end > 0) of valid UTF-8, and where it starts.
char32_t utf8_before(std::string_view text, size_t end, size_t* start);

}  // namespace skiff::text
