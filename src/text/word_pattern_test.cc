#include "text/word_pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/char_classes.h"
#include "text/text_regex.h"

namespace skiff::text {
namespace {

constexpr const char* kPatterns[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    ("[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]"
     "+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
    "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    R"(\p{N})",
    R"(\p{N}{1,3})",
};

struct Found {
  size_t begin, end;
  bool operator==(const Found&) const = default;
};

std::vector<Found> by_hand(const WordPattern& pattern, std::string_view text) {
  std::vector<Found> matches;
  bool after_gap = false;
  for (size_t at = 0; at < text.size();) {
    const WordPattern::Piece piece = pattern.next(text, at);
    EXPECT_GT(piece.end, at);
    EXPECT_TRUE(piece.match || !after_gap);
    after_gap = !piece.match;
    if (piece.match) matches.push_back({at, piece.end});
    at = piece.end;
  }
  return matches;
}

std::vector<Found> by_regex(TextRegex::Scan& scan, std::string_view text) {
  std::vector<TextRange> ranges;
  scan.find_all(text, ranges);
  std::vector<Found> matches;
  matches.reserve(ranges.size());
  for (const TextRange range : ranges) matches.push_back({range.begin, range.end});
  return matches;
}

// Draws characters that patterns treat differently, and arbitrary ones.
char32_t hard_character(std::mt19937& random) {
  constexpr std::u32string_view kCommon =
      U"  \t\n\r\u0085\u00A0\u2028\u3000\u200B\u180E''sStTmMdDrReEvVlLaZ\u017F\u212A019\u0663\u00BD"
      U"\u2167.,!-_/$+<>^~\u00E9\u00C9\u01C5\u02B0\u4E2D\u9FA5\u9FA6\u3042\u30A2\u3007\u0301\u0903"
      U"\u20DD\U0001F600\U00010400\U00010428\U000E0101\U00020000\u0378\uFFFF\u007F";
  if (random() % 8) return kCommon[random() % kCommon.size()];
  while (true) {
    const auto c = static_cast<char32_t>(random() % (random() % 2 ? 0x3000u : 0x110000u));
    if (c < 0xD800 || c > 0xDFFF) return c;
  }
}

TEST(WordPattern, EqualsTheRegexEngine) {
  std::mt19937 random(17);
  std::vector<std::string> texts;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string& text = texts.emplace_back();
    const bool few = random() % 2;  // few kinds of characters: long runs
    const char32_t kinds[] = {hard_character(random), hard_character(random),
                              hard_character(random)};
    for (size_t i = random() % 24; i > 0; --i)
      utf8_append(text, few ? kinds[random() % 3] : hard_character(random));
  }
  for (const char* regex : kPatterns) {
    const auto pattern = WordPattern::find(regex);
    ASSERT_TRUE(pattern) << regex;
    const auto compiled = TextRegex::compile(regex);
    ASSERT_TRUE(compiled);
    TextRegex::Scan scan(*compiled);
    for (const std::string& text : texts)
      ASSERT_EQ(by_hand(*pattern, text), by_regex(scan, text)) << regex << " on " << text;
  }
}

TEST(WordPattern, KnowsExactTextsOnly) {
  EXPECT_FALSE(WordPattern::find(""));
  EXPECT_FALSE(WordPattern::find("\\p{N}{1,4}"));
  EXPECT_FALSE(WordPattern::find(std::string(kPatterns[0]) + "|x"));
}

// The table leaves out planes that hold no letters, marks, numbers, signs or spaces.
TEST(CharClasses, EqualTheRegexEngineForEveryCharacter) {
  struct Case {
    const char* regex;
    int mask;
  };
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c)
    if (c < 0xD800 || c > 0xDFFF) utf8_append(all, c);
  for (const Case& c :
       {Case{"[\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\s]", kLetter | kMark | kNumber | kSign | kSpace},
        Case{"\\p{L}", kLetter}, Case{"[\\r\\n]", kBreak}}) {
    std::vector<TextRange> matches;
    const auto regex = TextRegex::compile(c.regex);
    ASSERT_TRUE(regex);
    TextRegex::Scan(*regex).find_all(all, matches);
    size_t next = 0;
    for (size_t at = 0; at < all.size();) {
      const size_t begin = at;
      const char32_t code = utf8_next(all, &at);
      const bool expected = next < matches.size() && matches[next].begin == begin;
      next += expected;
      ASSERT_EQ((CharClasses::get().of(code) & c.mask) != 0, expected) << uint32_t{code};
    }
  }
}

}  // namespace
}  // namespace skiff::text
