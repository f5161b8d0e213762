// Granite's calls: a list behind either of two marks, or at the start without one.
#include <gtest/gtest.h>

#include "text/answer/read_answer_testing.h"

namespace skiff::answer {
namespace {

const std::string kCalls = R"([{"name": "f", "arguments": {"count": 1}},
                               {"arguments": {"count": 2}, "name": "f"}])";

TEST(GraniteCalls, EitherMarkOrNoneStandsBeforeTheList) {
  for (const char* mark : {"<|tool_call|>", "<|tool_call|> ", "<tool_call>", "<tool_call>\n", "",
                           "\n ", "<|tool_call|><tool_call>"}) {
    const ReadAnswer answer = read("granite", mark + kCalls);
    ASSERT_EQ(answer.calls.size(), 2u) << mark;
    EXPECT_EQ(answer.calls[0], call(R"({"count": 1})")) << mark;
    EXPECT_EQ(answer.calls[1], call(R"({"count": 2})")) << mark;
    EXPECT_EQ(answer.content, "") << mark;
  }
}

TEST(GraniteCalls, TextBeforeAMarkIsContent) {
  for (const char* mark : {"<|tool_call|>", "<tool_call>"}) {
    const ReadAnswer answer = read("granite", "Here's my plan [1]: I look.\n" + (mark + kCalls));
    EXPECT_EQ(answer.content, "Here's my plan [1]: I look.");
    EXPECT_EQ(answer.calls.size(), 2u);
  }
}

TEST(GraniteCalls, OtherListsAreContent) {
  for (const std::string& text :
       {std::string("[1, 2]"), std::string(R"([{"city": "Ulm"}])"), "Here's my list: " + kCalls,
        std::string(R"([{"name": "Bob"}])"), std::string("[link](there)"), std::string("[")}) {
    const ReadAnswer answer = read("granite", text);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
  }
}

TEST(GraniteCalls, ReasoningMayStandBefore) {
  const ReadAnswer answer = read(
      "granite", "Here is my thought process: [hm] Here is my response:\n" + kCalls, "granite");
  EXPECT_EQ(answer.reasoning, "[hm]");
  EXPECT_EQ(answer.calls.size(), 2u);
}

}  // namespace
}  // namespace skiff::answer
