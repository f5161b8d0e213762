// text/jinja/unicode.h -- Python's view of text over UTF-8: characters, case and white space.
#pragma once
#include <string>
#include <string_view>

namespace skiff::jinja {

// Returns the beginning of a text, for messages; it ends with a whole character.
std::string_view excerpt(std::string_view text, size_t max_bytes = 80);

// Returns the bytes of the first character; 1 for a byte that starts none. `text` must not be
// empty.
size_t character_length(std::string_view text);
size_t count_characters(std::string_view text);
// Returns the byte offset of character `n`; text.size() if there are fewer characters.
size_t character_offset(std::string_view text, size_t n);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable: what repr() shows as it is
bool is_word(char32_t c);       // \w of Python's regular expressions
bool starts_identifier(char32_t c);
bool continues_identifier(char32_t c);
// Like str.strip(): `set` empty means white space.
enum class Side { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, Side side, std::string_view set = {});

// Maps each character to one character; of Unicode's special casing it applies only sharp s to SS.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string case_folded(std::string_view text);
std::string swap_case(std::string_view text);
std::string capitalize(std::string_view text);
// str.title: letters after a non-letter become upper case.
std::string title_words(std::string_view text);
// The properties that is_all() tests for every character. An empty text has kPrintable and kAscii
// only.
enum class Class {
  kAlpha,
  kDecimal,
  kDigit,
  kNumeric,
  kAlnum,
  kSpace,
  kUpper,
  kLower,
  kPrintable,
  kAscii
};
bool is_all(std::string_view text, Class wanted);
bool is_title(std::string_view text);  // str.istitle
bool is_identifier(std::string_view text);

}  // namespace skiff::jinja
