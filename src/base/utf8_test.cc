#include "base/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace skiff {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    utf8_append(text, c);
    ASSERT_EQ(utf8_length(text), static_cast<int>(text.size())) << std::hex << uint32_t{c};
    size_t pos = 0;
    ASSERT_EQ(utf8_next(text, &pos), c);
    ASSERT_EQ(pos, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(utf8_length(std::string_view(text).substr(0, cut)), 0);
  }
}

TEST(Utf8, RefusesWhatRfc3629Excludes) {
  for (const char* bad :
       {"\x80", "\xBF", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE4\xB8 ", "\xE4 "})
    EXPECT_EQ(utf8_length(bad), -1) << testing::PrintToString(bad);
}

TEST(Utf8, SanitizesAsPythonDoes) {
  // Each expectation is bytes.decode(errors="replace").
  EXPECT_EQ(utf8_sanitized("a\xE4\xB8z"), "a\uFFFDz");
  EXPECT_EQ(utf8_sanitized("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(utf8_sanitized("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(utf8_sanitized("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(utf8_sanitized("\xF0\x9F\x98\x80ok"), "\U0001F600ok");
}

TEST(Utf8, RandomBytesBecomeValid) {
  std::mt19937 rng(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(rng() % 40, '\0');
    for (char& b : bytes) b = static_cast<char>(rng() % 3 ? 0x80 + rng() % 128 : rng() % 256);
    EXPECT_TRUE(is_valid_utf8(utf8_sanitized(bytes)));
    if (is_valid_utf8(bytes)) {
      EXPECT_EQ(utf8_sanitized(bytes), bytes);
    }
  }
}

}  // namespace
}  // namespace skiff
