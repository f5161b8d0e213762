#include "text/nfc_quick.h"

#include <utf8proc.h>

#include <array>
#include <bitset>
#include <cstdint>

#include "base/ascii.h"
#include "text/utf8_fast.h"

namespace skiff::text {
namespace {

// The set of characters that are their own NFC after any text: they have combining class 0, and no
// composition holds them except as its first character.
class PlainCharacters {
 public:
  static const PlainCharacters& get() {
    static const PlainCharacters table;
    return table;
  }
  bool contains(char32_t c) const { return c < kEnd && plain_.test(c); }

 private:
  static constexpr char32_t kEnd = 0x40000;  // later characters are rare and count as not plain

  PlainCharacters() {
    plain_.set();
    for (char32_t c = 0xD800; c < 0xE000; ++c) plain_.reset(c);
    for (char32_t c = 0x1161; c <= 0x11FF; ++c) plain_.reset(c);  // Hangul vowels and finals
    for (char32_t c = 0; c < kEnd; ++c) look_at(static_cast<utf8proc_int32_t>(c));
  }

  void look_at(utf8proc_int32_t c) {
    const utf8proc_property_t& property = *utf8proc_get_property(c);
    if (property.combining_class != 0) plain_.reset(static_cast<size_t>(c));
    if (property.decomp_type != 0 || property.decomp_seqindex == UINT16_MAX) return;
    std::array<utf8proc_int32_t, 8> parts;
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        c, parts.data(), parts.size(),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    for (utf8proc_ssize_t i = 1; i < count; ++i) drop(parts[static_cast<size_t>(i)]);
    auto composed = utf8proc_normalize_utf32(
        parts.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed != 1 || parts[0] != c) drop(c);
  }
  void drop(utf8proc_int32_t c) {
    if (static_cast<char32_t>(c) < kEnd) plain_.reset(static_cast<size_t>(c));
  }

  std::bitset<kEnd> plain_;
};

}  // namespace

TextRange maybe_not_nfc(std::string_view text, size_t at) {
  const PlainCharacters& plain = PlainCharacters::get();
  size_t last = at;  // start of the last plain character, with which later ones may compose
  while (at < text.size()) {
    if (eight_ascii(text, at)) {
      at += 8;
      last = at - 1;
      continue;
    }
    size_t next = at;
    if (!plain.contains(utf8_take(text, &next))) break;
    last = at;
    at = next;
  }
  if (at == text.size()) return {at, at};
  while (at < text.size()) {
    size_t next = at;
    if (plain.contains(utf8_take(text, &next))) break;
    at = next;
  }
  return {last, at};
}

}  // namespace skiff::text
