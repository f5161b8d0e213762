#include "base/json_text.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "base/utf8.h"

namespace skiff {
namespace {

std::string as_json(std::string_view text) {
  std::string out = "x";
  append_json_string(out, text);
  EXPECT_EQ(out[0], 'x');
  return out.substr(1);
}

TEST(JsonText, EscapesWhatJsonMustNotHoldRaw) {
  EXPECT_EQ(as_json(""), R"("")");
  EXPECT_EQ(as_json("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(as_json("\n\r\t"), R"("\n\r\t")");
  EXPECT_EQ(as_json(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\x7f\"");
  EXPECT_EQ(as_json("\u4e2d\U0001F600"), "\"\u4e2d\U0001F600\"");
}

TEST(JsonText, AnyBytesComeBackAsTheirSanitizedText) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (round % 2 ? 256 : 128));
    const auto back = parse_json(as_json(bytes));
    ASSERT_TRUE(back) << back.error().what;
    EXPECT_EQ(back->get<std::string>(), utf8_sanitized(bytes));
  }
}

}  // namespace
}  // namespace skiff
