#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/nfc_quick.h"

namespace skiff::text {
namespace {

int options_of(NormalForm form) {
  switch (form) {
    case NormalForm::kNFC:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNFD:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNFKC:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNFKD:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

// Below U+0300 nothing composes with its neighbours and every character is its own NFC; below
// U+0080 that holds for all four forms.
bool is_normal_already(std::string_view text, NormalForm form) {
  const uint8_t limit = form == NormalForm::kNFC ? 0xCC : 0x80;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return static_cast<uint8_t>(c) < limit; });
}

using CodePoints = std::vector<utf8proc_int32_t>;

CodePoints decomposed(std::string_view text, NormalForm form) {
  CodePoints out;
  out.reserve(text.size() + 1);
  std::array<utf8proc_int32_t, 32> parts;  // the longest decomposition has 18
  int boundary = 0;
  for (size_t at = 0; at < text.size();) {
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(utf8_next(text, &at)), parts.data(), parts.size(),
        static_cast<utf8proc_option_t>(options_of(form)), &boundary);
    SKIFF_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
                "decomposition: {}", count);
    out.insert(out.end(), parts.begin(), parts.begin() + count);
  }
  return out;
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Canonical ordering (section 3.11 of the Unicode Standard): each run of characters whose class is
// not 0 is sorted by class, stably. utf8proc's own does it by swapping neighbours, which is
// quadratic in the length of a run.
void order_marks(CodePoints& text) {
  for (auto at = text.begin(); at != text.end();) {
    const auto begin = std::find_if(at, text.end(), combining_class);
    at = std::find_if_not(begin, text.end(), combining_class);
    std::stable_sort(begin, at, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
  }
}

std::string normal_form_of_all(std::string_view text, NormalForm form) {
  CodePoints points = decomposed(text, form);
  order_marks(points);
  const auto count = static_cast<utf8proc_ssize_t>(points.size());
  points.push_back(0);  // utf8proc_reencode writes a terminator behind the text
  const auto length =
      utf8proc_reencode(points.data(), count, static_cast<utf8proc_option_t>(options_of(form)));
  SKIFF_CHECK(length >= 0, "normal form: {}", utf8proc_errmsg(length));
  return std::string(reinterpret_cast<const char*>(points.data()), static_cast<size_t>(length));
}

std::string composed_where_needed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t done = 0; done < text.size();) {
    const TextRange range = maybe_not_nfc(text, done);
    out += text.substr(done, range.begin - done);
    const std::string_view stretch = text.substr(range.begin, range.end - range.begin);
    if (!stretch.empty()) out += normal_form_of_all(stretch, NormalForm::kNFC);
    done = range.end;
  }
  return out;
}

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  if (is_normal_already(text, form)) return std::string(text);
  return form == NormalForm::kNFC ? composed_where_needed(text) : normal_form_of_all(text, form);
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t c = utf8_next(text, &i);
    if (c == 0x130) {  // the one character whose lowercase is two
      out += "i\xCC\x87";
    } else {
      utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_mark(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN;
}

bool is_control(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

size_t grapheme_end(std::string_view text, size_t begin) {
  size_t end = begin;
  auto last = static_cast<utf8proc_int32_t>(utf8_next(text, &end));
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    size_t next = end;
    const auto c = static_cast<utf8proc_int32_t>(utf8_next(text, &next));
    if (utf8proc_grapheme_break_stateful(last, c, &state)) break;
    last = c;
    end = next;
  }
  return end;
}

char32_t utf8_before(std::string_view text, size_t end, size_t* start) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) --i;
  *start = i;
  return utf8_next(text, &i);
}

}  // namespace skiff::text
