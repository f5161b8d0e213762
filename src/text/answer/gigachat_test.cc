// GigaChat's calls: behind a mark of their own, or as a message of another role; and the mark at
// which its messages end.
#include <gtest/gtest.h>

#include <random>

#include "text/answer/read_answer_testing.h"

namespace skiff::answer {
namespace {

const std::string kEnd = "<|message_sep|>\n\n", kRole = "function call<|role_sep|>\n";
const std::string kCall = R"({"name": "f", "arguments": {"count": 1}})";

TEST(GigaChatCalls, EveryMarkAnnouncesACall) {
  for (const std::string& mark : {std::string("<|function_call|>"), kRole, kEnd + kRole,
                                  kEnd + "<|function_call|>", std::string("<|function_call|>\n")})
    for (const std::string& end : {std::string(), kEnd, std::string("\n")}) {
      std::string announced = mark;
      announced.append(kCall).append(end);
      const ReadAnswer alone = read("gigachat3", announced);
      EXPECT_EQ(alone.calls, std::vector<ExpectedCall>{call(R"({"count": 1})")}) << mark;
      EXPECT_EQ(alone.content, "") << mark;
      const ReadAnswer behind = read("gigachat3", "I look [1].\n" + announced);
      EXPECT_EQ(behind.calls, alone.calls) << mark;
      EXPECT_EQ(behind.content, "I look [1].") << mark;
    }
}

TEST(GigaChatCalls, TheEndOfAMessageIsNoContent) {
  EXPECT_EQ(read("gigachat3", "Hello. " + kEnd), (ReadAnswer{.content = "Hello."}));
  EXPECT_EQ(read("gigachat3", kEnd), ReadAnswer{});
  EXPECT_EQ(read("gigachat3", "a" + kEnd + kEnd + "b"), (ReadAnswer{.content = "a\n\nb"}));
  EXPECT_EQ(read("gigachat3", kEnd + "b"), (ReadAnswer{.content = "b"}));
  EXPECT_EQ(read("gigachat3", "a" + kEnd + "function"), (ReadAnswer{.content = "a\n\nfunction"}));
  EXPECT_EQ(read("gigachat3", "a" + kEnd + "function calls"),
            (ReadAnswer{.content = "a\n\nfunction calls"}));
}

TEST(GigaChatCalls, TextThatOnlyLooksLikeACallIsContent) {
  for (const char* text :
       {"Say \"function call\" or function call{}.", "<|function_call", "a <|message_sep|> b",
        "assistant<|role_sep|>\nyes", "<|function_call|>{\"arguments\": {}}"}) {
    const ReadAnswer answer = read("gigachat3", text);
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_EQ(answer.content, text);
  }
  const std::string broken = "Look: " + kEnd + kRole + R"({"name": "f", "arguments": [1]})";
  EXPECT_EQ(read("gigachat3", broken).content, broken);
}

TEST(GigaChatCalls, ALaterMessageMayHoldACall) {
  const ReadAnswer answer =
      read("gigachat3", kEnd + kRole + kCall + kEnd + kRole + kCall + kEnd + "Both are done.");
  EXPECT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.content, "Both are done.");
}

// read() compares what comes at once with what comes byte by byte.
TEST(GigaChatCalls, AnyOrderOfMarksIsReadTheSameInPieces) {
  const std::vector<std::string> parts = {
      kEnd, kRole, kCall, "<|function_call|>", " ",       "\n\n", "f", "<|", ",", "function call",
      "{}", "}",   "so",  "<think>",           "</think>"};
  std::mt19937 random(5);
  size_t calls = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t n = random() % 8; n > 0; --n) text += parts[random() % parts.size()];
    calls += read("gigachat3", text).calls.size();
  }
  EXPECT_GT(calls, 50u);
}

}  // namespace
}  // namespace skiff::answer
