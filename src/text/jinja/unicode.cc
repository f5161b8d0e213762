#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <utility>

#include "base/utf8.h"

namespace skiff::jinja {
namespace {

using Mapping = utf8proc_int32_t (*)(utf8proc_int32_t);

char32_t map_one(Mapping map, char32_t c) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

// Most characters are ASCII, and a table lookup costs several times as much as this test.
bool is_ascii(char32_t c) { return c < 0x80; }
bool is_ascii_upper(char32_t c) { return c >= 'A' && c <= 'Z'; }
bool is_ascii_lower(char32_t c) { return c >= 'a' && c <= 'z'; }

char32_t upper(char32_t c) {
  return is_ascii(c) ? (is_ascii_lower(c) ? c - 32 : c) : map_one(utf8proc_toupper, c);
}
char32_t lower(char32_t c) {
  return is_ascii(c) ? (is_ascii_upper(c) ? c + 32 : c) : map_one(utf8proc_tolower, c);
}
char32_t title(char32_t c) { return is_ascii(c) ? upper(c) : map_one(utf8proc_totitle, c); }

int category(char32_t c) {
  if (is_ascii_lower(c)) return UTF8PROC_CATEGORY_LL;
  if (is_ascii_upper(c)) return UTF8PROC_CATEGORY_LU;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_upper(char32_t c) {
  return is_ascii(c) ? is_ascii_upper(c) : category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return is_ascii(c) ? is_ascii_lower(c) : utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_title(char32_t c) { return !is_ascii(c) && category(c) == UTF8PROC_CATEGORY_LT; }
bool cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_alpha(char32_t c) {
  const int kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

// Superscripts, and the circled and dotted digits.
bool is_digit_sign(char32_t c) {
  return c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) ||
         (c >= 0x2474 && c <= 0x247c) || (c >= 0x2488 && c <= 0x2490);
}

template <class Map>
std::string mapped(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) utf8_append(out, map(utf8_next(text, &at)));
  return out;
}

bool holds(char32_t c, Class wanted) {
  if (wanted == Class::kAscii) return is_ascii(c);
  if (wanted == Class::kSpace) return is_space(c);
  if (wanted == Class::kUpper) return !is_lower(c) && !is_title(c);
  if (wanted == Class::kLower) return !is_upper(c) && !is_title(c);
  if (wanted == Class::kPrintable) return is_printable(c);
  const int kind = category(c);
  switch (wanted) {
    case Class::kAlpha:
      return is_alpha(c);
    case Class::kDecimal:
      return kind == UTF8PROC_CATEGORY_ND;
    case Class::kDigit:
      return kind == UTF8PROC_CATEGORY_ND || is_digit_sign(c);
    case Class::kNumeric:
      return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
    case Class::kAlnum:
      return is_alpha(c) || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
    default:
      return false;
  }
}

}  // namespace

std::string_view excerpt(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<uint8_t>(text[max_bytes]) & 0xc0) == 0x80) --max_bytes;
  return text.substr(0, max_bytes);
}

size_t character_length(std::string_view text) {
  const int n = utf8_length(text);
  return n > 0 ? static_cast<size_t>(n) : 1;
}

size_t count_characters(std::string_view text) {
  size_t n = 0;
  for (; !text.empty(); ++n) text.remove_prefix(character_length(text));
  return n;
}

size_t character_offset(std::string_view text, size_t n) {
  size_t at = 0;
  for (; n > 0 && at < text.size(); --n) at += character_length(text.substr(at));
  return at;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool starts_identifier(char32_t c) {
  return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool continues_identifier(char32_t c) {
  const int kind = category(c);
  return starts_identifier(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_MN ||
         kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_PC;
}

bool is_word(char32_t c) { return c == '_' || holds(c, Class::kAlnum); }

std::string_view strip(std::string_view text, Side side, std::string_view set) {
  const auto stripped = [&](std::string_view character) {
    if (!set.empty()) return set.find(character) != std::string_view::npos;
    size_t at = 0;
    return is_space(utf8_next(character, &at));
  };
  while (side != Side::kRight && !text.empty()) {
    const size_t n = character_length(text);
    if (!stripped(text.substr(0, n))) break;
    text.remove_prefix(n);
  }
  while (side != Side::kLeft && !text.empty()) {
    size_t n = 1;
    while (n < 4 && n < text.size() && (text[text.size() - n] & 0xc0) == 0x80) ++n;
    if (character_length(text.substr(text.size() - n)) != n) n = 1;
    if (!stripped(text.substr(text.size() - n))) break;
    text.remove_suffix(n);
  }
  return text;
}

std::string to_lower(std::string_view text) { return mapped(text, lower); }

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (c == 0xdf)
      out += "SS";
    else
      utf8_append(out, upper(c));
  }
  return out;
}

std::string case_folded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (c == 0xdf || c == 0x1e9e)
      out += "ss";
    else
      utf8_append(out, c == 0x3c2 ? 0x3c3 : lower(c));
  }
  return out;
}

std::string swap_case(std::string_view text) {
  return mapped(text, [](char32_t c) { return is_upper(c) ? lower(c) : upper(c); });
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return mapped(text,
                [&](char32_t c) { return std::exchange(first, false) ? title(c) : lower(c); });
}

std::string title_words(std::string_view text) {
  bool inside = false;
  return mapped(text,
                [&](char32_t c) { return std::exchange(inside, cased(c)) ? lower(c) : title(c); });
}

bool is_all(std::string_view text, Class wanted) {
  bool any_cased = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (!holds(c, wanted)) return false;
    any_cased = any_cased || cased(c);
  }
  if (wanted == Class::kUpper || wanted == Class::kLower) return any_cased;
  return !text.empty() || wanted == Class::kPrintable || wanted == Class::kAscii;
}

bool is_title(std::string_view text) {
  bool inside = false, any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (is_upper(c) || is_title(c)) {
      if (inside) return false;
    } else if (is_lower(c) && !inside) {
      return false;
    }
    inside = cased(c);
    any |= inside;
  }
  return any;
}

bool is_identifier(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t c = utf8_next(text, &at);
    if (!(first ? starts_identifier(c) : continues_identifier(c))) return false;
  }
  return !text.empty();
}

}  // namespace skiff::jinja
