#include "text/jinja/unicode.h"

#include <locale.h>
#include <wctype.h>

#include <utility>

#include "base/utf8.h"

namespace skiff::jinja {
namespace {

// Unicode's case tables, whatever the user's locale is.
locale_t unicode() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

char32_t upper(char32_t c) { return unicode() ? towupper_l(c, unicode()) : c; }
char32_t lower(char32_t c) { return unicode() ? towlower_l(c, unicode()) : c; }
bool alpha(char32_t c) { return unicode() && iswalpha_l(c, unicode()) && !(c >= '0' && c <= '9'); }
bool cased(char32_t c) { return upper(c) != c || lower(c) != c; }

template <class Map>
std::string mapped(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) utf8_append(out, map(utf8_next(text, &at)));
  return out;
}

bool holds(char32_t c, Class wanted) {
  switch (wanted) {
    case Class::kAlpha:
      return alpha(c);
    case Class::kDigit:
      return c >= '0' && c <= '9';
    case Class::kAlnum:
      return alpha(c) || (c >= '0' && c <= '9');
    case Class::kSpace:
      return is_space(c);
    case Class::kUpper:
      return upper(c) == c;
    case Class::kLower:
      return lower(c) == c;
  }
  return false;
}

}  // namespace

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

std::string capitalize(std::string_view text) {
  bool first = true;
  return mapped(text,
                [&](char32_t c) { return std::exchange(first, false) ? upper(c) : lower(c); });
}

std::string title_words(std::string_view text) {
  bool inside = false;
  return mapped(text,
                [&](char32_t c) { return std::exchange(inside, cased(c)) ? lower(c) : upper(c); });
}

bool is_all(std::string_view text, Class wanted) {
  bool any_cased = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (!holds(c, wanted)) return false;
    any_cased |= cased(c);
  }
  return wanted == Class::kUpper || wanted == Class::kLower ? any_cased : !text.empty();
}

}  // namespace skiff::jinja
