#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/normalizer.h"
#include "text/split_words.h"
#include "text/text_regex.h"
#include "text/token_decoder.h"

namespace skiff::text {
namespace {

using testing::ElementsAre;
using Strings = std::vector<std::string>;

Strings words_of(const Json& spec, const std::string& text) {
  const PreTokenizer made = read_pre_tokenizer(spec, "test");
  Words words;
  words.list.push_back({text, true});
  for (const SplitStep& step : made.steps) step(words);
  Strings out;
  for (const Word& word : words.list) out.emplace_back(word.text);
  return out;
}

Strings split(const std::string& behavior, bool invert = false) {
  return words_of({{"type", "Split"},
                   {"pattern", {{"String", "-"}}},
                   {"behavior", behavior},
                   {"invert", invert}},
                  "the-final--countdown");
}

// The examples of the documentation of Hugging Face tokenizers.
TEST(Split, Behaviors) {
  EXPECT_THAT(split("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(split("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(split("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split("Removed", true), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, Kinds) {
  const Json gpt2 = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  EXPECT_THAT(words_of(gpt2, "it's  2 o'clock"),
              ElementsAre(" it", "'s", " ", " 2", " o", "'", "clock"));
  const Json first = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  EXPECT_THAT(words_of(first, "a b"), ElementsAre("▁a", "▁b"));
  const Json whole = {{"type", "Metaspace"}, {"prepend_scheme", "never"}, {"split", false}};
  EXPECT_THAT(words_of(whole, "a b"), ElementsAre("a▁b"));
  EXPECT_THAT(words_of({{"type", "Digits"}, {"individual_digits", true}}, "a12"),
              ElementsAre("a", "1", "2"));
  EXPECT_THAT(words_of({{"type", "Digits"}}, "a12b"), ElementsAre("a", "12", "b"));
  EXPECT_THAT(words_of({{"type", "Punctuation"}}, "a,+b。"), ElementsAre("a", ",", "+", "b", "。"));
  EXPECT_THAT(words_of(nullptr, "a b"), ElementsAre("a b"));
}

TEST(PreTokenizer, ByteLevelMustBeLast) {
  const Json level = {{"type", "ByteLevel"}}, digits = {{"type", "Digits"}};
  EXPECT_THROW(read_pre_tokenizer({{"type", "Sequence"}, {"pretokenizers", {level, digits}}}, "t"),
               LoadError);
}

std::string normalized(const Json& spec, std::string text) {
  for (const NormalizeStep& step : read_normalizer(spec, "test")) step(text);
  return text;
}

TEST(Normalizer, Kinds) {
  EXPECT_EQ(normalized({{"type", "NFC"}}, "e\u0301\u212B가"), "\u00E9\u00C5가");
  EXPECT_EQ(normalized({{"type", "NFC"}}, "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(normalized({{"type", "NFD"}}, "\u00E9"), "e\u0301");
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "\uFB01\u00BD"), "fi1\u20442");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "ÀΣİ"), "àσi\u0307");
  EXPECT_EQ(normalized({{"type", "Strip"}}, " \u00A0a b\n"), "a b");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_right", false}}, " a "), "a ");
  EXPECT_EQ(normalized({{"type", "Strip"}}, "  "), "");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", ">"}}, "a"), ">a");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", ">"}}, ""), "");
  const Json regex = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", "_"}};
  EXPECT_EQ(normalized(regex, "a \u3000b\n"), "a_b_");
}

TEST(TokenDecoder, Metaspace) {
  const auto decoder = TokenDecoder::read({{"type", "Metaspace"}}, "test");
  EXPECT_EQ(decoder.join({"▁a", "▁b", "c"}), "a bc");
  EXPECT_EQ(decoder.piece("▁a"), " a");
}

Strings matches(const std::string& pattern, const std::string& text) {
  const auto regex = TextRegex::compile(pattern);
  if (!regex) return {"refused: " + regex.error().what};
  std::vector<TextRange> found;
  TextRegex::Scan(*regex).find_all(text, found);
  Strings out;
  for (const TextRange range : found)
    out.push_back(text.substr(range.begin, range.end - range.begin));
  return out;
}

TEST(TextRegex, SpeaksTheDialect) {
  EXPECT_THAT(matches("\\s", "a\u0085b\u180Ec\u3000"), ElementsAre("\u0085", "\u3000"));
  EXPECT_THAT(matches("[^\\s\\p{L}]+", "a\u180E!b"), ElementsAre("\u180E!"));
  EXPECT_THAT(matches("\\S+", "a\u0085b"), ElementsAre("a", "b"));
  EXPECT_THAT(matches("\\w+", "e\u0301\u203F1 \u00BD"), ElementsAre("e\u0301\u203F1"));
  EXPECT_THAT(matches("(?i:'s|'ll)", "'S'\u017F'LL"), ElementsAre("'S", "'\u017F", "'LL"));
  EXPECT_THAT(matches("^a", "a\na"), ElementsAre("a", "a"));
  EXPECT_THAT(matches("b*", "abba"), ElementsAre("bb"));
  EXPECT_THAT(matches("[[:alpha:]\\]]+", "a]1"), ElementsAre("a]"));
  for (const char* pattern : {"[a&&b]", "[a[b]]", "\\h", "[\\W]", "(?m)a", "(?m:a.b)", "(", "[]a]"})
    EXPECT_THAT(matches(pattern, "a"), ElementsAre(testing::StartsWith("refused: "))) << pattern;
}

TEST(TextRegex, GivesUpWithinItsLimits) {
  EXPECT_THAT(matches("(a|a|aa)+$b|c", "c" + std::string(60, 'a') + "c"), ElementsAre("c"));
  const std::string spaces(1 << 20, ' ');
  EXPECT_THAT(matches("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", spaces), ElementsAre(spaces));
}

}  // namespace
}  // namespace skiff::text
