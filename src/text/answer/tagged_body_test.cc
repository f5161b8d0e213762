// Calls whose arguments stand between marks as plain text.
#include <gtest/gtest.h>

#include "text/answer/read_answer_testing.h"

namespace skiff::answer {
namespace {

TEST(TaggedBody, ValuesBetweenTagsAreTypedByTheSchema) {
  const auto value = [](const char* argument, const std::string& text) {
    const ReadAnswer answer =
        read("qwen3_coder", "<function=f><parameter=" + std::string(argument) + ">" + text +
                                "</parameter></function>");
    EXPECT_EQ(answer.calls.size(), 1u);
    return answer.calls.empty() ? OrderedJson() : answer.calls[0].arguments[argument];
  };
  EXPECT_EQ(value("text", "12"), "12");
  EXPECT_EQ(value("text", "null"), "null");
  EXPECT_EQ(value("maybe", "NULL"), nullptr);
  EXPECT_EQ(value("maybe", "12"), "12");
  EXPECT_EQ(value("count", " 12 "), 12);
  EXPECT_EQ(value("count", "twelve"), "twelve");
  EXPECT_EQ(value("count", "None"), nullptr);
  EXPECT_EQ(value("on", "True"), true);
  EXPECT_EQ(value("on", " False"), false);
  EXPECT_EQ(value("on", "maybe"), "maybe");
  EXPECT_EQ(value("maybe", "None"), nullptr);
  EXPECT_EQ(value("text", "None"), "None");
  EXPECT_EQ(value("list", "['a', True]"), OrderedJson::parse(R"(["a", true])"));
  EXPECT_EQ(value("optional", "12139"), "12139");
  EXPECT_EQ(value("optional", "null"), nullptr);
  EXPECT_EQ(value("digit", "2"), "2");
  EXPECT_EQ(value("named", "7"), "7");
  EXPECT_EQ(value("either", "7"), 7);
  EXPECT_EQ(value("either", "[7]"), "[7]");
  EXPECT_EQ(value("unknown", "{\"a\": 1}"), OrderedJson::parse("{\"a\": 1}"));
  EXPECT_EQ(value("unknown", "plain words"), "plain words");
  EXPECT_EQ(value("text", "\n\na\n\n"), "\na\n");
}

// What a constraint lets a model write is passed on, whether or not our own reader would take it.
TEST(TaggedBody, JsonBetweenTagsIsNotRewritten) {
  const std::string nested = std::string(90, '[') + std::string(90, ']');
  for (const std::string& json :
       {std::string(R"({"x":1,"x":2})"), std::string("1e999"), nested, std::string("-0.50")}) {
    const auto events =
        events_of(options_for("qwen3_coder"),
                  "<function=f><parameter=unknown>\n" + json + "\n</parameter></function>", true,
                  [] { return 1; });
    ASSERT_EQ(events.size(), 3u) << json;
    EXPECT_EQ(events[1].text, R"({"unknown": )" + json + "}");
  }
}

// Models forget the closing mark of a value.
TEST(TaggedBody, AValueMayLackItsClosingMark) {
  const std::string begin = "<tool_call>\n<function=f>\n<parameter=text>\na\n";
  const std::string next = begin + "<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>";
  const std::string last = begin + "</function>\n</tool_call>", cut = begin + "</function>\n";
  const std::string twice = last + "\n" + last;
  for (const auto& [text, arguments] :
       {std::pair(next, R"({"text": "a", "count": 3})"), std::pair(last, R"({"text": "a"})"),
        std::pair(cut, R"({"text": "a"})"), std::pair(twice, R"({"text": "a"})")}) {
    const auto options = options_for("qwen3_coder");
    const auto whole = events_of(options, text, true, [&] { return text.size(); });
    const ReadAnswer answer = read_events(whole);
    ASSERT_FALSE(answer.calls.empty()) << text;
    EXPECT_EQ(answer.calls.back(), call(arguments)) << text;
    EXPECT_EQ(answer.content, "") << text;
    for (size_t at = 1; at < text.size(); ++at) {
      size_t pieces = 0;
      const auto pieces_at = [&] { return pieces++ == 0 ? at : text.size(); };
      ASSERT_EQ(events_of(options, text, true, pieces_at), whole) << at;
    }
  }
  EXPECT_EQ(read("qwen3_coder", last + "\nand more").content, "and more");
}

TEST(TaggedBody, MarksWithinAValueThatEndNothingStay) {
  for (const char* value :
       {"<parameter=none>\nx", "a\n<parameter=none>\nx", "a </function> b", "a</function>\n</tool",
        "\na\n<parameter=\n<parameter=x</function>\n"}) {
    const ReadAnswer answer =
        read("qwen3_coder", std::string("<tool_call>\n<function=f>\n<parameter=text>\n") + value +
                                "\n</parameter>\n</function>\n</tool_call>");
    ASSERT_EQ(answer.calls.size(), 1u) << value;
    EXPECT_EQ(answer.calls[0].arguments["text"], value);
  }
}

TEST(TaggedBody, ProseThatNamesACallShowsNone) {
  const std::string text = "In our DSL you write <function=sum> and then a body.";
  for (const AnswerEvent& event :
       events_of(options_for("qwen3_coder"), text, true, [] { return 1; }))
    EXPECT_EQ(event.part, Part::kContent);
  EXPECT_EQ(read("qwen3_coder", text).content, text);
}

}  // namespace
}  // namespace skiff::answer
