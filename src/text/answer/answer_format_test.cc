// Names of parsers, detection from templates, and rules that rows of the tables keep.
#include "text/answer/answer_format.h"

#include <gtest/gtest.h>

namespace skiff::answer {
namespace {

TEST(AnswerFormat, NamesOfOtherServersAreKnown) {
  for (const char* name : {"ernie-x1",      "ernie-45-vl-thinking",
                           "deepseek",      "deepseek-r1",
                           "deepseek-v3.1", "deepseek-v3-0324",
                           "hermes",        "qwen25",
                           "deepseekv31",   "glm47",
                           "kimi_k2",       "llama4_json",
                           "minimax-m2",    "qwen3_xml",
                           "pythonic",      "mistral",
                           "longcat",       "granite-20b-fc",
                           "interns1",      "phi4_mini_json",
                           "deepseek_v4",   "deepseekv4",
                           "step3p5",       "trinity",
                           "minimax",       "dots",
                           "gigachat3"})
    EXPECT_TRUE(find_call_format(name) && *find_call_format(name)) << name;
  for (const char* name :
       {"ernie-x1", "ernie_x1", "ernie-45-vl", "ernie-45-vl-thinking", "qwen3", "deepseek_r1",
        "granite", "glm45", "mistral", "minimax_m2", "deepseek-v4", "minimax-m3",
        "minimax-append-think", "nemotron_3", "interns1"})
    EXPECT_TRUE(find_reasoning_format(name) && *find_reasoning_format(name)) << name;
}

// SGLang's name of Kimi-VL's marks; Kimi K2 has others.
TEST(AnswerFormat, KimisThinkInMarksOfTheirOwn) {
  EXPECT_EQ((*find_reasoning_format("kimi"))->begin, "◁think▷");
  EXPECT_EQ((*find_reasoning_format("kimi_k2"))->begin, "<think>");
}

// Formats that other servers have and this one has not are no other format.
TEST(AnswerFormat, FormatsThatAreNotHereAreRefused) {
  for (const char* name : {"openai", "gpt-oss", "gemma4", "functiongemma", "step3", "apertus",
                           "minicpm5", "minimax_m3", "kimi_k3", "inkling"})
    EXPECT_FALSE(find_call_format(name)) << name;
  for (const char* name : {"openai_gptoss", "gpt-oss", "gemma4", "kimi_k3", "inkling"})
    EXPECT_FALSE(find_reasoning_format(name)) << name;
}

TEST(AnswerFormat, AnUnknownNameGetsTheList) {
  const auto found = find_call_format("hermess");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().what.find("hermes,"), std::string::npos) << found.error().what;
  EXPECT_EQ(*find_call_format("none"), nullptr);
}

TEST(AnswerFormat, TemplatesShowTheirFormat) {
  const auto detected = [](const char* text) {
    const CallFormat* format = detect_call_format(text);
    return std::string(format ? format->name : "none");
  };
  EXPECT_EQ(detected("'<tool_call>\\n{\"name\": \"'"), "hermes");
  EXPECT_EQ(detected("<tool_call>\\n<function="), "qwen3_coder");
  EXPECT_EQ(detected("<tool_call>{{ name }}<arg_key>"), "glm45");
  EXPECT_EQ(detected("[TOOL_CALLS]"), "mistral");
  EXPECT_EQ(detected("<|python_tag|>"), "llama3_json");
  EXPECT_EQ(detected("{\"name\": function name, \"parameters\": dictionary of argument name"),
            "llama3_json");
  EXPECT_EQ(detected("role + '<|role_sep|>\n'; 'role': 'function call'"), "gigachat3");
  EXPECT_EQ(detected("role + '<|role_sep|>\n'; call='<|function_call|>'"), "gigachat3");
  EXPECT_EQ(detected("role + '<|role_sep|>\n' + content"), "none");
  EXPECT_EQ(detected("{{ messages }}"), "none");
  EXPECT_EQ(detect_reasoning_format("content.split('</think>')")->name, "think");
  EXPECT_EQ(detect_reasoning_format("</think> <response>")->name, "ernie-x1");
  EXPECT_EQ(detect_reasoning_format("hello"), nullptr);
}

// MarkFinder takes the first mark that is complete, so none may begin with another one.
TEST(AnswerFormat, NoMarkHidesAnother) {
  for (const CallFormat& format : call_formats()) {
    const std::vector<std::string_view> content = {format.section, format.section_too, format.open,
                                                   format.open_too, format.message_end};
    const std::vector<std::string_view> between = {
        format.close,       format.open,     format.section_end, format.section,
        format.section_too, format.open_too, format.message_end};
    for (const auto& marks : {content, between})
      for (size_t i = 0; i < marks.size(); ++i)
        for (size_t j = 0; j < marks.size(); ++j)
          EXPECT_FALSE(i != j && !marks[i].empty() && marks[j].starts_with(marks[i]))
              << format.name << ": " << marks[i] << " " << marks[j];
  }
}

}  // namespace
}  // namespace skiff::answer
