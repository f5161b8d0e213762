// Every format reads its calls, whole and in pieces of any sizes, with equal events.
#include "text/answer/answer_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "text/answer/read_answer_testing.h"

namespace skiff::answer {
namespace {

struct Case {
  std::string name, text;
  ReadAnswer expected;
  bool whole = true;      // the model has ended the answer
  bool arguments = true;  // compare those of calls, too
};

// The cases that all formats share.
std::vector<Case> cases_of(const FormatWriter& format) {
  const ExpectedCall one = call(R"({"text": "Paris"})"), none = call("{}");
  const ExpectedCall types = call(
      R"({"text": "12", "count": 3, "ratio": -2.5e-3, "on": true, "list": [1, "a", [false]],
          "map": {"k": {"l": null}}, "maybe": null})");
  const ExpectedCall escapes = call(R"({"text": "a\"b\\c\nd\te 你好 \u00e9 </x>", "other": "'"})");
  const ExpectedCall braces = call(R"({"text": "}{][ \"}\" (),;", "other": "\\\"}"})");
  const ExpectedCall large = {"f", {{"text", std::string(100'000, 'x') + "\\ \"q\" }"}}};
  const ExpectedCall spaced = {"get_it.now", {{"text", " a  b\n\nc "}}};
  const std::string sole = format.write({one});
  const bool at_start = (*find_call_format(format.format))->only_at_start;
  const auto calls = [](std::vector<ExpectedCall> list) {
    return ReadAnswer{.reasoning = {}, .content = {}, .calls = std::move(list), .ids = {}};
  };
  std::vector<Case> cases = {
      {"none",
       "Just text, 1 < 2 and [brackets] {here}.\n",
       {.reasoning = "", .content = "Just text, 1 < 2 and [brackets] {here}.\n"}},
      {"one", sole, calls({one})},
      {"parallel", format.write({one, types, none}), calls({one, types, none})},
      {"types", format.write({types}), calls({types})},
      {"empty arguments", format.write({none}), calls({none})},
      {"escapes", format.write({escapes}), calls({escapes})},
      {"braces in a string", format.write({braces}), calls({braces})},
      {"a large argument", format.write({large}), calls({large})},
      {"blanks around", "\n " + sole + "\n\n", calls({one})},
      {"blanks in a string", format.write({spaced}), calls({spaced})},
      {"reasoning before",
       "<think>\nIt may say <tool_call> or [TOOL_CALLS].\n</think>\n\n" + sole,
       {.reasoning = "It may say <tool_call> or [TOOL_CALLS].", .content = "", .calls = {one}}},
      {"malformed", format.malformed, {.reasoning = "", .content = format.malformed}},
      {"an empty answer", "", {}},
  };
  if (!at_start)
    cases.push_back({"text before",
                     "I will look.\n" + sole,
                     {.reasoning = "", .content = "I will look.", .calls = {one}}});
  else
    cases.push_back({"text before",
                     "I will look.\n" + sole,
                     {.reasoning = "", .content = "I will look.\n" + sole}});
  return cases;
}

void expect_equal(const ReadAnswer& read, const Case& one, const std::string& what) {
  EXPECT_EQ(read.reasoning, one.expected.reasoning) << what;
  EXPECT_EQ(read.content, one.expected.content) << what;
  ASSERT_EQ(read.calls.size(), one.expected.calls.size()) << what;
  for (size_t i = 0; one.arguments && i < read.calls.size(); ++i) {
    EXPECT_EQ(read.calls[i].name, one.expected.calls[i].name) << what;
    EXPECT_EQ(read.calls[i].arguments, one.expected.calls[i].arguments) << what;
  }
}

class Formats : public ::testing::TestWithParam<FormatWriter> {};

TEST_P(Formats, AnswersAreReadAsWritten) {
  const auto options = options_for(GetParam().format);
  for (const Case& one : cases_of(GetParam())) {
    const auto events = events_of(options, one.text, one.whole, [&] { return one.text.size(); });
    expect_equal(read_events(events), one, std::string(GetParam().format) + ", " + one.name);
  }
}

// Bytes, and 1 to 8 tokens a step of 1 to 6 bytes each.
TEST_P(Formats, PiecesMakeNoDifference) {
  const auto options = options_for(GetParam().format);
  std::mt19937 random(11);
  for (const Case& one : cases_of(GetParam())) {
    const auto whole = events_of(options, one.text, one.whole, [&] { return one.text.size(); });
    EXPECT_EQ(events_of(options, one.text, one.whole, [] { return 1; }), whole) << one.name;
    for (size_t tokens = 1; tokens <= 8; ++tokens) {
      const auto step = [&] {
        size_t size = 0;
        for (size_t i = 0; i < tokens; ++i) size += 1 + random() % 6;
        return size;
      };
      EXPECT_EQ(events_of(options, one.text, one.whole, step), whole) << one.name;
    }
  }
}

// A small answer, cut in two at every byte.
TEST_P(Formats, CutsAtEveryByteMakeNoDifference) {
  const auto options = options_for(GetParam().format);
  const std::string text =
      "<think>a\n</think>\n" +
      GetParam().write({call(R"({"text": "é}\n\"", "count": 1})"), call("{}")}) + "\n";
  const auto whole = events_of(options, text, true, [&] { return text.size(); });
  for (size_t at = 1; at < text.size(); ++at) {
    size_t pieces = 0;
    const auto cut = [&] { return pieces++ == 0 ? at : text.size(); };
    ASSERT_EQ(events_of(options, text, true, cut), whole) << at;
  }
}

// Cut off at every byte: what is sent stays a beginning of what would have been sent, and the end
// of an unfinished call is never invented.
TEST_P(Formats, CutOffAnswersKeepWhatCame) {
  const auto options = options_for(GetParam().format);
  const ExpectedCall full = call(R"({"text": "Paris in {May}", "count": 21})");
  const std::string text = GetParam().write({full});
  const auto whole = read_events(events_of(options, text, true, [&] { return text.size(); }));
  for (size_t at = 0; at < text.size(); ++at) {
    const auto events = events_of(options, text.substr(0, at), /*whole=*/false, [] { return 3; });
    std::string arguments;
    bool ended = false;
    for (const AnswerEvent& event : events) {
      if (event.part == Part::kCallBegin) {
        EXPECT_EQ(event.text, "f");
      }
      if (event.part == Part::kArguments) arguments += event.text;
      ended = ended || event.part == Part::kCallEnd;
      EXPECT_NE(event.part, Part::kBroken);
    }
    if (ended || parse_json(arguments)) {
      EXPECT_EQ(OrderedJson::parse(arguments), full.arguments) << at;
    }
  }
  EXPECT_EQ(whole.calls, std::vector<ExpectedCall>{full});
}

// A model that ends its answer inside a call has made none: the text comes back.
TEST_P(Formats, UnfinishedCallsComeBackAsText) {
  const auto options = options_for(GetParam().format);
  const std::string text = GetParam().write({call(R"({"text": "Paris", "count": 21})")});
  const std::string cut = text.substr(0, text.find("Paris") + 3);
  const auto read = read_events(events_of(options, cut, /*whole=*/true, [] { return 2; }));
  EXPECT_TRUE(read.calls.empty());
  EXPECT_EQ(read.content, cut);
}

TEST_P(Formats, OneCallEndsTheAnswer) {
  auto options = options_for(GetParam().format);
  options->one_call = true;
  AnswerParser parser(options, /*seed=*/7);
  AnswerEvents events;
  parser.push(GetParam().write({call(R"({"text": "a"})"), call("{}")}) + " and more", events);
  EXPECT_TRUE(parser.ended());
  parser.finish(true, events);
  const ReadAnswer read = read_events(events);
  EXPECT_EQ(read.calls, std::vector<ExpectedCall>{call(R"({"text": "a"})")});
  EXPECT_EQ(read.content, "");
}

INSTANTIATE_TEST_SUITE_P(All, Formats, ::testing::ValuesIn(format_writers()),
                         [](const auto& instance) {
                           std::string name = instance.param.format + instance.param.variant;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(AnswerParser, EveryFormatIsTested) {
  for (const CallFormat& format : call_formats())
    EXPECT_TRUE(std::ranges::any_of(format_writers(), [&](const FormatWriter& writer) {
      return writer.format == format.name;
    })) << format.name;
}

TEST(AnswerParser, JsonCallsInOtherSpellings) {
  const std::vector<ExpectedCall> expected = {call(R"({"text": "a"})")};
  for (const char* body : {
           R"({"arguments": {"text": "a"}, "name": "f"})",
           R"({"name": "f", "parameters": {"text": "a"}})",
           R"({"name": "f", "arguments": "{\"text\": \"a\"}"})",
           R"({"id": 7, "type": "function", "name": "f", "arguments": {"text": "a"}, "x": [{}]})",
           R"([{"name": "f", "arguments": {"text": "a"}}])",
       }) {
    const ReadAnswer answer = read("hermes", std::string("<tool_call>") + body + "</tool_call>");
    EXPECT_EQ(answer.calls, expected) << body;
    EXPECT_EQ(answer.content, "") << body;
  }
  EXPECT_EQ(read("hermes", R"(<tool_call>{"name": "f"}</tool_call>)").calls,
            std::vector<ExpectedCall>{call("{}")});
  EXPECT_EQ(read("hermes", R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)").calls,
            std::vector<ExpectedCall>{call("{}")});
}

// The source text of arguments is passed on as it is.
TEST(AnswerParser, JsonArgumentsAreNotRewritten) {
  const std::string arguments = R"({"b" : 1.00, "a":12345678901234567890,"c": "\u00e9"})";
  const std::string text =
      R"(<tool_call>{"name": "f", "arguments": )" + arguments + "}</tool_call>";
  const auto events = events_of(options_for("hermes"), text, true, [] { return 1; });
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].text, arguments);
}

TEST(AnswerParser, WhatIsNoCallComesBack) {
  for (const char* body :
       {R"({"name": 3, "arguments": {}})", R"({"name": "f", "arguments": [1]})",
        R"({"name": "f", "arguments": "text"})", R"({"arguments": {}})", R"({"name": "", "a": 1})",
        R"({"name": "f", "arguments": {"a": tru}})", R"({"name": "f", "arguments": {"a": 01}})",
        R"({"name": "f", "arguments": {}, "arguments": {}})", "{\"name\": \"f\n\"}", "null"}) {
    const std::string text = "Before <tool_call>" + std::string(body) + "</tool_call> after";
    const ReadAnswer answer = read("hermes", text);
    EXPECT_TRUE(answer.calls.empty()) << body;
    EXPECT_EQ(answer.content, text) << body;
  }
}

TEST(AnswerParser, ACallAfterABrokenOneCounts) {
  const ReadAnswer answer =
      read("hermes", "<tool_call>{x}</tool_call>\n<tool_call>{\"name\": \"f\"}</tool_call>");
  EXPECT_EQ(answer.content, "<tool_call>{x}</tool_call>");
  EXPECT_EQ(answer.calls, std::vector<ExpectedCall>{call("{}")});
}

TEST(AnswerParser, ReasoningStartsWhereThePromptSays) {
  EXPECT_EQ(read("hermes", "\nso\n</think>\n\nyes", "think", true),
            (ReadAnswer{.reasoning = "so", .content = "yes"}));
  EXPECT_EQ(read("hermes", "no end", "think", true), (ReadAnswer{.reasoning = "no end"}));
  EXPECT_EQ(read("hermes", "no mark", "think"), (ReadAnswer{.content = "no mark"}));
  EXPECT_EQ(read("hermes", "<think>again</think>x", "think", true),
            (ReadAnswer{.reasoning = "again", .content = "x"}));
  // An answer about the mark is no reasoning.
  EXPECT_EQ(read("hermes", "Use <think> so.", "think"), (ReadAnswer{.content = "Use <think> so."}));
  EXPECT_EQ(read("hermes", "<think>a</think><think>b", "think"),
            (ReadAnswer{.reasoning = "a", .content = "<think>b"}));
  EXPECT_EQ(read("hermes", "a", "none", true), (ReadAnswer{.content = "a"}));
}

TEST(AnswerParser, ErniesResponseMarksAreNoContent) {
  const std::string call_text = "<tool_call>{\"name\": \"f\"}</tool_call>";
  EXPECT_EQ(read("ernie-x1", "a</think>\n\n\n<response>\nhello\n</response>\n", "ernie-x1", true),
            (ReadAnswer{.reasoning = "a", .content = "hello"}));
  EXPECT_EQ(read("ernie-x1", "a\n</think>\n\n\n" + call_text, "ernie-x1", true).calls.size(), 1u);
  EXPECT_EQ(read("ernie-x1", "a</think><response>b</response>", "ernie45", true).content, "b");
  EXPECT_EQ(read("ernie-x1", "<response>x" + call_text + "</response>", "ernie-x1").content,
            "x" + call_text);
}

TEST(AnswerParser, IdsAreTheModelsOrOfItsForm) {
  EXPECT_EQ(read("kimi_k2", kimi_calls({call("{}"), call("{}")})).ids,
            (std::vector<std::string>{"functions.f:0", "functions.f:1"}));
  const auto short_ids = read("mistral", "[TOOL_CALLS]f{}[TOOL_CALLS]f[ARGS]{}").ids;
  ASSERT_EQ(short_ids.size(), 2u);
  EXPECT_EQ(short_ids[0].size(), 9u);
  EXPECT_NE(short_ids[0], short_ids[1]);
  EXPECT_EQ(read("mistral", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}").ids,
            std::vector<std::string>{"abcdefghi"});
  EXPECT_EQ(read("mistral", R"([TOOL_CALLS] [{"name": "f", "arguments": {}, "id": "123456789"}])")
                .calls.size(),
            1u);
  EXPECT_TRUE(read("hermes", "<tool_call>{\"name\": \"f\"}</tool_call>")
                  .ids[0]
                  .starts_with("chatcmpl-tool-"));
}

TEST(AnswerParser, HunyuansAnswerMarksAreNoContent) {
  EXPECT_EQ(read("jamba", "a\n</think>\n<answer>\nhello\n</answer>", "hunyuan_a13b", true),
            (ReadAnswer{.reasoning = "a", .content = "hello"}));
}

TEST(AnswerParser, ACallEndsTheReasoningOfModelsThatForgetTheMark) {
  const std::string tagged = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
  for (const std::string& text : {tagged, "<tool_call>" + tagged.substr(12)}) {
    const ReadAnswer answer = read("qwen3_coder", "I look.\n" + text, "think", true);
    EXPECT_EQ(answer.reasoning, "I look.");
    EXPECT_EQ(answer.calls, std::vector<ExpectedCall>{call("{}")});
  }
  EXPECT_EQ(read("qwen3_coder", "a <tool_call> b", "think", true).reasoning, "a <tool_call> b");
  const ReadAnswer kimi = read("kimi_k2", "I look." + kimi_calls({call("{}")}), "think", true);
  EXPECT_EQ(kimi.reasoning, "I look.");
  EXPECT_EQ(kimi.calls, std::vector<ExpectedCall>{call("{}")});
  EXPECT_EQ(read("hermes", "a " + tagged, "think", true).reasoning, "a " + tagged);
}

// Without a mark in front, an object is a call by its members alone.
TEST(AnswerParser, AnAnswerInJsonIsNoCall) {
  for (const char* format : {"llama3_json", "xlam"})
    for (const char* object : {R"({"name": "Bob"})", R"({"name": "Bob", "type": "dog"})"}) {
      const std::string text =
          std::string(format) == "xlam" ? "[" + std::string(object) + "]" : object;
      const ReadAnswer answer = read(format, text);
      EXPECT_TRUE(answer.calls.empty()) << text;
      EXPECT_EQ(answer.content, text);
    }
  EXPECT_EQ(read("llama3_json", R"({"name": "f"})").calls, std::vector<ExpectedCall>{call("{}")});
  EXPECT_EQ(read("llama3_json", R"({"name": "Bob", "parameters": null})").calls.size(), 1u);
}

TEST(AnswerParser, TokensOfReasoningAreCounted) {
  auto options = options_for("hermes");
  AnswerParser parser(options, /*seed=*/7);
  AnswerEvents events;
  for (const char* token : {"<think>", "a", " b", " c", "</think>", "x"})
    parser.push(token, events);
  EXPECT_EQ(parser.reasoning_tokens(), 3);
}

}  // namespace
}  // namespace skiff::answer
