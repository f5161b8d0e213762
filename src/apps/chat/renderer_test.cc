#include "apps/chat/renderer.h"

#include <gtest/gtest.h>

#include <random>

namespace skiff::apps {
namespace {

// The text pushed in pieces of `size` characters (the text is ASCII).
std::string rendered(std::string_view text, size_t size, bool styled, bool thinking = false) {
  AnswerRenderer renderer(styled, thinking);
  std::string out;
  for (size_t i = 0; i < text.size(); i += size) out += renderer.push(text.substr(i, size));
  return out + renderer.finish();
}

TEST(TerminalSafe, ControlCharactersBecomeVisible) {
  EXPECT_EQ(terminal_safe("a\x1b[31mb"), "a␛[31mb");
  EXPECT_EQ(terminal_safe(std::string_view("\0\a\b\x7f", 4)), "␀␇␈␡");
  EXPECT_EQ(terminal_safe("a\r\nb\tc"), "a\nb\tc");
  EXPECT_EQ(terminal_safe("\xC2\x9B"
                          "31m"),
            "\xEF\xBF\xBD"
            "31m");  // U+009B, CSI
  EXPECT_EQ(terminal_safe("\x9b"
                          "31m"),
            "\xEF\xBF\xBD"
            "31m");  // the same as a raw byte
}

TEST(TerminalSafe, OtherTextStaysAsItIs) {
  for (const char* text : {"plain", "你好，世界", "naïve é", "👩‍🚀", "\xC2\xA0"})
    EXPECT_EQ(terminal_safe(text), text);
}

// Whatever bytes come, none that drives a terminal goes out.
TEST(TerminalSafe, NoBytesGetThrough) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string safe = terminal_safe(bytes);
    for (size_t i = 0; i < safe.size(); ++i) {
      const auto byte = static_cast<unsigned char>(safe[i]);
      EXPECT_FALSE((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F);
      if (byte == 0xC2) {
        EXPECT_GE(static_cast<unsigned char>(safe[i + 1]), 0xA0);
      }
    }
  }
}

TEST(AnswerRenderer, ThinkingIsDimHoweverItIsCut) {
  for (size_t size : {1u, 2u, 3u, 5u, 7u, 100u}) {
    EXPECT_EQ(rendered("<think>well</think>yes", size, true), "\x1b[2mwell\x1b[0myes");
    EXPECT_EQ(rendered("\n<think>\nwell\n</think>\n\nyes", size, true),
              "\x1b[2m\nwell\n\x1b[0m\n\nyes");
    EXPECT_EQ(rendered("well</think>yes", size, true, true), "\x1b[2mwell\x1b[0myes");
  }
}

TEST(AnswerRenderer, WithoutStyleTextIsUntouched) {
  for (size_t size : {1u, 3u, 100u})
    EXPECT_EQ(rendered("<think>well</think>yes", size, false), "<think>well</think>yes");
}

TEST(AnswerRenderer, OnlyTheVeryStartCanBeThinking) {
  for (size_t size : {1u, 4u, 100u})
    for (const char* text :
         {"say <think>x</think>", "<thin air>", "<", "a < b", "<think", "</think>"})
      EXPECT_EQ(rendered(text, size, true), text) << size;
  EXPECT_EQ(rendered("<think>a</think>b<think>c", 1, true), "\x1b[2ma\x1b[0mb<think>c");
}

TEST(AnswerRenderer, AnEndInsideThinkingEndsTheStyle) {
  EXPECT_EQ(rendered("<think>well</th", 1, true), "\x1b[2mwell</th\x1b[0m");
  EXPECT_EQ(rendered("<think>well", 100, true), "\x1b[2mwell\x1b[0m");
}

TEST(AnswerRenderer, ControlCharactersNeverGetThrough) {
  for (const bool styled : {false, true})
    EXPECT_EQ(rendered("x\x1b]0;title\a", 3, styled), "x␛]0;title␇");
}

}  // namespace
}  // namespace skiff::apps
