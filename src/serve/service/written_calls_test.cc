// Arguments that a constraint makes a model write between tags are read as the values they stand
// for.
#include <gtest/gtest.h>

#include "grammar/matching_testing.h"
#include "text/answer/answer_testing.h"
#include "text/answer/call_writing.h"

namespace skiff::service {
namespace {

using grammar::testing::accepts;

struct Tool {
  explicit Tool(const char* properties) {
    tools = OrderedJson::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    OrderedJson& parameters = tools[0]["function"]["parameters"];
    parameters = {{"type", "object"}, {"additionalProperties", false}};
    parameters["properties"] = OrderedJson::parse(properties);
    for (const auto& [name, schema] : parameters["properties"].items())
      parameters["required"].push_back(name);
    const answer::CallFormat& format = **answer::find_call_format("qwen3_coder");
    const auto tag =
        answer::call_tag(format, *answer::find_call_writing(format, [](auto) { return true; }),
                         tools, {.required = true, .all_schemas = true});
    grammar =
        *grammar::compile({.kind = grammar::ConstraintKind::kStructuralTag, .text = tag->dump()},
                          grammar::testing::byte_vocabulary());
  }
  static std::string call(const std::string& name, const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=" + name + ">\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  }
  OrderedJson read(const std::string& text) const {
    const auto options = answer::options_for("qwen3_coder");
    options->types = answer::ToolTypes(tools);
    const auto read =
        answer::read_events(answer::events_of(options, text, /*whole=*/true, [] { return 3; }));
    return read.calls.size() == 1 ? read.calls[0].arguments : OrderedJson();
  }
  OrderedJson tools;
  std::shared_ptr<const grammar::Grammar> grammar;
};

TEST(WrittenCalls, NoStringOfJsonHoldsAMark) {
  const Tool fixed(
      R"({"a": {"type": "array", "items": {"enum": ["x</parameter>y"]}, "minItems": 1, "maxItems": 1}})");
  EXPECT_FALSE(accepts(fixed.grammar, Tool::call("a", R"(["x</parameter>y"])")));
  const std::string text = Tool::call("a", R"(["x\u003c/parameter>y"])");
  EXPECT_TRUE(accepts(fixed.grammar, text));
  EXPECT_EQ(fixed.read(text), OrderedJson::parse(R"({"a": ["x</parameter>y"]})"));
  const Tool free(R"({"a": {"type": "array", "items": {"type": "string"}}})");
  EXPECT_FALSE(accepts(free.grammar, Tool::call("a", R"(["<"])")));
  EXPECT_TRUE(accepts(free.grammar, Tool::call("a", R"(["\u003c", "é>"])")));
}

TEST(WrittenCalls, PlainTextHoldsNothingThatMayEndIt) {
  const Tool tool(R"({"a": {"type": "string"}})");
  EXPECT_TRUE(accepts(tool.grammar, Tool::call("a", "x < y <b>")));
  for (const char* value : {"x\n<parameter=a>", "x</function>\n</tool_call>"})
    EXPECT_FALSE(accepts(tool.grammar, Tool::call("a", value))) << value;
}

TEST(WrittenCalls, WhatReadsAsNullIsNull) {
  const std::string null = Tool::call("s", "null");
  const Tool word(R"({"s": {"type": "string", "nullable": true, "enum": ["null"]}})");
  EXPECT_TRUE(accepts(word.grammar, null));
  EXPECT_EQ(word.read(null)["s"], "null");
  const Tool optional(R"({"s": {"anyOf": [{"type": "string"}, {"type": "null"}]}})");
  EXPECT_TRUE(accepts(optional.grammar, null));
  EXPECT_EQ(optional.read(null)["s"], nullptr);
  EXPECT_TRUE(accepts(optional.grammar, Tool::call("s", "nullable")));
  EXPECT_FALSE(accepts(optional.grammar, Tool::call("s", "NULL")));
  EXPECT_FALSE(accepts(optional.grammar, Tool::call("s", " None")));
  const Tool nullable(R"({"s": {"type": "string", "nullable": true}})");
  EXPECT_FALSE(accepts(nullable.grammar, null));
}

// Without quotes wherever the reader takes the text for a string.
TEST(WrittenCalls, StringsByOtherKeywordsStandWithoutQuotes) {
  for (const char* properties : {R"({"s": {"enum": ["1", "2"]}})", R"({"s": {"const": "2"}})",
                                 R"({"s": {"anyOf": [{"type": "string"}, {"type": "null"}]}})"}) {
    const Tool tool(properties);
    const std::string text = Tool::call("s", "2");
    EXPECT_TRUE(accepts(tool.grammar, text)) << properties;
    EXPECT_EQ(tool.read(text)["s"], "2") << properties;
  }
}

}  // namespace
}  // namespace skiff::service
