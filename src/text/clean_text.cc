#include "text/clean_text.h"

#include "base/utf8.h"
#include "text/unicode.h"

namespace skiff::text {
namespace {

constexpr char32_t kGone = 0xFFFFFFFF;

// Replaces each character by what `map` returns; kGone removes it.
template <class Map>
std::string mapped(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t c = map(utf8_next(text, &i));
    if (c != kGone) utf8_append(out, c);
  }
  return out;
}

char32_t nmt(char32_t c) {
  const bool control = (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                       c == 0x8F || c == 0x9F;
  if (control) return kGone;
  const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  return space ? ' ' : c;
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

char32_t bert_clean(char32_t c) {
  const bool line = c == '\t' || c == '\n' || c == '\r';
  if (c == 0 || c == 0xFFFD || (!line && is_control(c))) return kGone;
  return line || is_white_space(c) ? ' ' : c;
}

std::string spaced_ideographs(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = utf8_next(text, &i);
    const bool apart = is_ideograph(c);
    if (apart) out += ' ';
    utf8_append(out, c);
    if (apart) out += ' ';
  }
  return out;
}

}  // namespace

std::string nmt_cleaned(std::string_view text) { return mapped(text, nmt); }

std::string without_marks(std::string_view text) {
  return mapped(text, [](char32_t c) { return is_mark(c) ? kGone : c; });
}

std::string bert_cleaned(std::string_view text, const BertCleaning& options) {
  std::string out(text);
  if (options.clean_text) out = mapped(out, bert_clean);
  if (options.handle_chinese_chars) out = spaced_ideographs(out);
  if (options.strip_accents)
    out = mapped(normal_form(out, NormalForm::kNFD),
                 [](char32_t c) { return is_nonspacing_mark(c) ? kGone : c; });
  return options.lowercase ? lowercase(out) : out;
}

}  // namespace skiff::text
