// text/jinja/unicode.h -- Python's view of text over UTF-8: characters, case and white space.
#pragma once
#include <string>
#include <string_view>

namespace skiff::jinja {

// Bytes of the first character; 1 for a byte that starts none. `text` is not empty.
size_t character_length(std::string_view text);
size_t count_characters(std::string_view text);
// Byte offset of character `n`; text.size() if there are fewer.
size_t character_offset(std::string_view text, size_t n);

bool is_space(char32_t c);  // str.isspace
// Like str.strip(): `set` empty means white space.
enum class Side { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, Side side, std::string_view set = {});

// One character to one; of what Unicode calls special casing only sharp s to SS.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string capitalize(std::string_view text);
// str.title: letters after a non-letter become upper case.
std::string title_words(std::string_view text);
// Every character holds `predicate`, and there is one.
enum class Class { kAlpha, kDigit, kAlnum, kSpace, kUpper, kLower };
bool is_all(std::string_view text, Class wanted);

}  // namespace skiff::jinja
