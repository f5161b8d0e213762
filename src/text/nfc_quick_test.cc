#include "text/nfc_quick.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>

#include "base/utf8.h"
#include "text/unicode.h"

namespace skiff::text {
namespace {

// Normalizes the whole text with the library.
std::string by_library(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  EXPECT_GE(size, 0);
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  std::free(mapped);
  return out;
}

std::string nfc(const std::string& text) { return by_library(text, UTF8PROC_COMPOSE); }

// Draws characters that compose, decompose or reorder, and arbitrary ones.
char32_t hard_character(std::mt19937& random) {
  constexpr std::u32string_view kCommon =
      U"aeo \u0301\u0308\u0323\u0327\u0344\u0345\u0653\u093C\u0915\u0958\u09C7\u09BE\u0B47\u0B56"
      U"\u1100\u1161\u11A8\uAC00\uAC01\u212B\u2126\u00C5\u00E9\u1E14\u304B\u3099\uFB1D\u2ADC\u0F73"
      U"\uFA0E\uFA10\u4E2D\U0001109B\U000110BA\U0001D15E\U0002F800\u1025\u102E\u0338=\u200D";
  if (random() % 4) return kCommon[random() % kCommon.size()];
  while (true) {
    const auto c = static_cast<char32_t>(random() % (random() % 2 ? 0x3100u : 0x110000u));
    if (c < 0xD800 || c > 0xDFFF) return c;
  }
}

TEST(NfcQuick, NormalFormIsTheLibrarys) {
  std::mt19937 random(31);
  for (int trial = 0; trial < 100000; ++trial) {
    std::string text;
    for (size_t i = random() % 10; i > 0; --i) utf8_append(text, hard_character(random));
    ASSERT_EQ(normal_form(text, NormalForm::kNFC), nfc(text)) << text;
  }
}

// Long runs of marks are put in order before the library sees them.
TEST(NormalForm, RunsOfMarksAreOrderedAsTheLibraryDoes) {
  constexpr std::u32string_view kMarks =
      U"\u0301\u0323\u0345\u0327\u0308\u0344\u0F73\u0F74\u3099\u093C\U0001D165\u0334\u05B0\u0670";
  constexpr std::pair<NormalForm, int> kForms[] = {
      {NormalForm::kNFC, UTF8PROC_COMPOSE},
      {NormalForm::kNFD, UTF8PROC_DECOMPOSE},
      {NormalForm::kNFKC, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
      {NormalForm::kNFKD, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  std::mt19937 random(32);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text;
    for (size_t runs = random() % 4; runs > 0; --runs) {
      utf8_append(text, hard_character(random));
      for (size_t n = random() % 100; n > 0; --n)
        utf8_append(text, kMarks[random() % (1 + random() % kMarks.size())]);
    }
    for (const auto& [form, options] : kForms)
      ASSERT_EQ(normal_form(text, form), by_library(text, options)) << text;
  }
}

// Quadratic work would take sixty-four times as long for eight times the marks: 22 s for 160 KB.
TEST(NormalForm, IsLinearInMarks) {
  const auto seconds = [](int n) {
    std::string text = "a";
    for (int i = 0; i < n; ++i) text += "\u0301";
    for (int i = 0; i < n; ++i) text += "\u0323";
    double best = 1e9;
    for (int round = 0; round < 3; ++round) {
      const std::clock_t start = std::clock();
      EXPECT_EQ(normal_form(text, NormalForm::kNFC).size(), text.size());  // U+1EA1 and the rest
      best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return best;
  };
  EXPECT_LT(seconds(64000), 24 * seconds(8000) + 0.02);
}

TEST(NfcQuick, EveryCharacterBetweenOthers) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text = "a";
    utf8_append(text, c);
    text += "\u0301\u4E2D";
    utf8_append(text, c);
    ASSERT_EQ(normal_form(text, NormalForm::kNFC), nfc(text)) << uint32_t{c};
  }
}

TEST(NfcQuick, CommonTextIsSkipped) {
  const std::string text = "caf\u00E9 \u897F\u6E38\u8BB0 \u3042\u30A2 \uAC01 \U0001F600, plain";
  EXPECT_EQ(maybe_not_nfc(text, 0).begin, text.size());
  const TextRange range = maybe_not_nfc("plain ascii e\u0301 x", 0);
  EXPECT_EQ(range.begin, 12u);
  EXPECT_EQ(range.end, 15u);
}

}  // namespace
}  // namespace skiff::text
