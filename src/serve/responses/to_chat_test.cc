#include "serve/responses/to_chat.h"

#include <gtest/gtest.h>

namespace skiff::responses {
namespace {

OrderedJson chat(const char* body) {
  const auto out = to_chat(OrderedJson::parse(body));
  EXPECT_TRUE(out) << out.error().what;
  return out ? *out : OrderedJson();
}

std::string refused(const char* body) {
  const auto out = to_chat(OrderedJson::parse(body));
  return out ? "none" : out.error().field;
}

TEST(ResponsesToChat, TextAndInstructions) {
  const OrderedJson out = chat(R"({"input": "hi", "instructions": "be short", "store": true,
      "max_output_tokens": 9, "reasoning": {"effort": "low"}, "top_p": 0.5})");
  EXPECT_EQ(out, OrderedJson::parse(R"({"top_p": 0.5,
      "messages": [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}],
      "max_completion_tokens": 9, "reasoning_effort": "low"})"));
}

TEST(ResponsesToChat, InstructionsAndTheDeveloperAreOneMessage) {
  const OrderedJson messages = chat(R"({"instructions": "be short", "input": [
      {"role": "developer", "content": "be kind"}, {"role": "system", "content": "be true"},
      {"role": "user", "content": "hi"}, {"role": "developer", "content": "now"}]})")["messages"];
  EXPECT_EQ(messages, OrderedJson::parse(R"([
      {"role": "system", "content": "be short\n\nbe kind\n\nbe true"},
      {"role": "user", "content": "hi"}, {"role": "system", "content": "now"}])"));
}

// Items of one turn of the assistant are one message of a chat.
TEST(ResponsesToChat, ItemsOfATurnAreOneMessage) {
  const OrderedJson messages = chat(R"({"input": [
      {"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
      {"role": "user", "content": "hi"},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1", "output": "one"},
      {"type": "function_call_output", "call_id": "2", "output": "two"},
      {"role": "assistant", "content": "done"}]})")["messages"];
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[2]["reasoning_content"], "hm");
  EXPECT_EQ(messages[2]["content"], "so");
  EXPECT_EQ(messages[2]["tool_calls"].size(), 2u);
  EXPECT_EQ(messages[4]["tool_call_id"], "2");
  EXPECT_EQ(messages[5]["content"], "done");
}

TEST(ResponsesToChat, ToolsAreFlat) {
  const OrderedJson out = chat(R"({"input": "hi", "tool_choice": {"type": "function", "name": "f"},
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]})");
  EXPECT_EQ(out["tools"][0]["function"]["name"], "f");
  EXPECT_EQ(out["tool_choice"]["name"], "f");
}

TEST(ResponsesToChat, WrongTypesAreNotAbsent) {
  const auto with = [](const std::string& field) {
    return refused((R"({"input": "x", )" + field + "}").c_str());
  };
  EXPECT_EQ(with(R"("reasoning": "high")"), "reasoning");
  EXPECT_EQ(with(R"("text": "json")"), "text");
  EXPECT_EQ(with(R"("text": {"format": "json"})"), "text.format");
  EXPECT_EQ(with(R"("background": "yes")"), "background");
  EXPECT_EQ(with(R"("store": 1)"), "store");
  EXPECT_EQ(with(R"("include": "reasoning.encrypted_content")"), "include");
  EXPECT_EQ(with(R"("include": [5])"), "include");
  EXPECT_EQ(with(R"("include": ["message.output_text.logprobs"])"), "include");
  EXPECT_EQ(with(R"("include": ["reasoning.encrypted_content"])"), "none");
  EXPECT_EQ(with(R"("reasoning": null, "text": null, "include": null)"), "none");
  EXPECT_EQ(refused(R"({"input": [{"type": 5, "role": "user", "content": "x"}]})"), "input");
}

TEST(ResponsesToChat, RefusalsNameTheField) {
  EXPECT_EQ(refused("{}"), "input");
  EXPECT_EQ(refused(R"({"input": []})"), "input");
  EXPECT_EQ(refused(R"({"input": [{"type": "item_reference", "id": "x"}]})"), "input");
  EXPECT_EQ(refused(R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})"),
            "input");
  EXPECT_EQ(refused(R"({"input": "x", "instructions": 3})"), "instructions");
  EXPECT_EQ(refused(R"({"input": "x", "tools": [{"type": "web_search"}]})"), "tools");
  EXPECT_EQ(refused(R"({"input": "x", "previous_response_id": "r"})"), "previous_response_id");
  EXPECT_EQ(refused(R"({"input": "x", "background": true})"), "background");
  EXPECT_EQ(refused(R"({"input": "x", "top_logprobs": 2})"), "top_logprobs");
}

}  // namespace
}  // namespace skiff::responses
