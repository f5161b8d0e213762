#include "grammar/regex_classes.h"

#include "grammar/refusal.h"
#include "text/char_classes.h"

namespace skiff::grammar {
namespace {

// Returns the characters whose general category is in `classes`; \s and line breaks have flags of
// their own. It looks at every character there is, so callers keep the result.
Characters of_classes(uint8_t classes) {
  Characters out;
  const auto& table = text::CharClasses::get();
  constexpr char32_t kEnd = 0x110000;
  for (char32_t c = 0; c < kEnd; ++c) {
    const char32_t from = c;
    while (c < kEnd && (table.of(c) & classes) != 0) ++c;
    if (c > from) out.add(from, c - 1);
  }
  out.settle();
  return out;
}

Characters ascii_digits() { return {{'0', '9'}}; }
Characters ascii_word() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }

Characters with_all_beyond_ascii(Characters set) {
  set.add(0x80, 0x10FFFF);
  set.settle();
  return set;
}

// Returns what is white space for both ECMA-262 and Python. U+FEFF is white space for ECMA-262
// alone, the information separators (U+001C to U+001F) and U+0085 are for Python alone.
Characters common_spaces() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
}
Characters all_spaces() {
  Characters out = common_spaces();
  for (const auto& [low, high] : {Characters::Range{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}})
    out.add(low, high);
  out.settle();
  return out;
}

// In Python, \d matches the decimal digits of all scripts. Category N contains them and more, which
// suffices for the greatest reading.
const Characters& all_digits() {
  static const Characters kDigits = of_classes(text::kNumber);
  return kDigits;
}
// In Python, \w matches letters and numbers; engines that follow UTS #18 count marks as word
// characters, too.
const Characters& all_word() {
  static const Characters kWord = [] {
    Characters out = of_classes(text::kNumber | text::kLetter | text::kMark);
    out.add(ascii_word());
    out.settle();
    return out;
  }();
  return kWord;
}

}  // namespace

Reading opposite(Reading reading) {
  return reading == Reading::kLeast ? Reading::kGreatest : Reading::kLeast;
}

Characters class_escape(char letter, Reading reading, Detail detail) {
  const bool least = reading == Reading::kLeast, exact = detail == Detail::kExact;
  switch (letter) {
    case 'd':
      return least ? ascii_digits() : exact ? all_digits() : with_all_beyond_ascii(ascii_digits());
    case 'w':
      return least ? ascii_word() : exact ? all_word() : with_all_beyond_ascii(ascii_word());
    case 's':
      return least ? common_spaces() : all_spaces();
    case 'D':
      return class_escape('d', opposite(reading), detail).inverse();
    case 'W':
      return class_escape('w', opposite(reading), detail).inverse();
    case 'S':
      return class_escape('s', opposite(reading), detail).inverse();
    default:
      refuse("\\{} is not supported", letter);
  }
}

Characters any_but_line_ends(Reading reading) {
  if (reading == Reading::kGreatest) return Characters{{'\n', '\n'}}.inverse();
  return Characters{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.inverse();
}

std::optional<Characters> category(std::string_view name) {
  struct Category {
    std::string_view name, long_name;
    Characters set;
  };
  static const Category kCategories[] = {{"L", "Letter", of_classes(text::kLetter)},
                                         {"Ll", "Lowercase_Letter", of_classes(text::kLower)},
                                         {"M", "Mark", of_classes(text::kMark)},
                                         {"N", "Number", of_classes(text::kNumber)}};
  for (const Category& known : kCategories)
    if (name == known.name || name == known.long_name) return known.set;
  return std::nullopt;
}

}  // namespace skiff::grammar
