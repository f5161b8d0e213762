#include "text/char_classes.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "text/text_regex.h"

namespace skiff::text {
namespace {

// The ranges that hold characters with a class; planes 4 to 13 are unassigned, 15 and 16 private.
struct Stretch {
  char32_t begin, end;
};
constexpr Stretch kStretches[] = {{0, 0xD800}, {0xE000, 0x40000}, {0xE0000, 0xE1000}};

struct ClassPattern {
  uint8_t bits;
  std::string_view regex;
};
constexpr ClassPattern kPatterns[] = {{kUpper, "[\\p{Lu}\\p{Lt}]+"},
                                      {kLower, "\\p{Ll}+"},
                                      {kCaseless, "[\\p{Lm}\\p{Lo}]+"},
                                      {kMark, "\\p{M}+"},
                                      {kNumber, "\\p{N}+"},
                                      {kSign, "[\\p{P}\\p{S}]+"},
                                      {kSpace, "\\s+"},
                                      {kBreak, "[\\r\\n]+"}};

std::vector<uint8_t> classes_of_all(size_t characters) {
  std::string text;
  for (const Stretch& stretch : kStretches)
    for (char32_t c = stretch.begin; c < stretch.end; ++c) utf8_append(text, c);
  std::vector<uint8_t> classes(characters);
  std::vector<TextRange> matches;
  for (const ClassPattern& pattern : kPatterns) {
    const auto regex = TextRegex::compile(pattern.regex);
    SKIFF_CHECK(regex, "{}", pattern.regex);
    matches.clear();
    TextRegex::Scan(*regex).find_all(text, matches);
    for (const TextRange match : matches)
      for (size_t at = match.begin; at < match.end;) classes[utf8_next(text, &at)] |= pattern.bits;
  }
  return classes;
}

}  // namespace

const CharClasses& CharClasses::get() {
  static const CharClasses table;
  return table;
}

CharClasses::CharClasses() {
  const std::vector<uint8_t> all = classes_of_all(kCharacters);
  std::map<std::string_view, uint16_t> known;
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(block * kBlock);
    const std::string_view content(reinterpret_cast<const char*>(&*begin), kBlock);
    const auto [it, fresh] = known.emplace(content, known.size());
    if (fresh) classes_.insert(classes_.end(), begin, begin + kBlock);
    blocks_[block] = it->second;
  }
}

}  // namespace skiff::text
