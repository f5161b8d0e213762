#include "serve/messages/to_chat.h"

#include <gtest/gtest.h>

namespace skiff::messages {
namespace {

OrderedJson chat(const char* body) {
  const auto out = to_chat(OrderedJson::parse(body), /*counts=*/true);
  EXPECT_TRUE(out) << out.error().what;
  return out ? *out : OrderedJson();
}

std::string refused(const char* body, bool counts = true) {
  const auto out = to_chat(OrderedJson::parse(body), counts);
  return out ? "none" : out.error().field;
}

TEST(MessagesToChat, SystemTextAndBlocks) {
  const OrderedJson out = chat(R"({"model": "m", "top_k": 3, "seed": 7, "stop_sequences": ["x"],
      "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
      "messages": [{"role": "user", "content": "hi"}]})");
  EXPECT_EQ(out["messages"], OrderedJson::parse(R"([{"role": "system", "content": "a\nb"},
                                                    {"role": "user", "content": "hi"}])"));
  EXPECT_EQ(out["stop"], OrderedJson::parse(R"(["x"])"));
  EXPECT_EQ(out["seed"], 7);
  EXPECT_EQ(out["top_k"], 3);
}

TEST(MessagesToChat, AFormatMayStandWhereItOnceStood) {
  const auto format_of = [](const char* fields) {
    return chat(
        (std::string(R"({"messages": [{"role": "user", "content": "hi"}], )") + fields + "}")
            .c_str())["response_format"];
  };
  EXPECT_EQ(format_of(R"("output_format": {"type": "json_schema", "schema": {"type": "null"}})"),
            format_of(R"("output_config": {"format": {"type": "json_schema",
                         "schema": {"type": "null"}}})"));
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": "hi"}],
      "output_format": {"type": "json_schema", "schema": {}},
      "output_config": {"format": {"type": "json_schema", "schema": {}}}})"),
            "output_format");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": "hi"}], "output_config": 3})"),
            "output_config");
}

TEST(MessagesToChat, CallsAndResultsInTheOrderOfTheCalls) {
  const OrderedJson out = chat(R"({"messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
      {"role": "user", "content": [
        {"type": "text", "text": "here"},
        {"type": "tool_result", "tool_use_id": "2", "content": "two"},
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "one"}]}]}
      ]})");
  const OrderedJson& messages = out["messages"];
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[1]["reasoning_content"], "hm");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"],
            OrderedJson::parse(R"({"a": 1})"));
  EXPECT_EQ(messages[2]["content"], "one");
  EXPECT_EQ(messages[3]["content"], "two");
  EXPECT_EQ(messages[4]["content"][0]["text"], "here");
}

TEST(MessagesToChat, AMessageOfTheAssistantAtTheEndIsContinued) {
  const auto continued = [](const std::string& last, const std::string& more = "") {
    const OrderedJson out = chat(
        (R"({"messages": [{"role": "user", "content": "hi"}, )" + last + "]" + more + "}").c_str());
    return out.value("continue_final_message", OrderedJson());
  };
  const std::string begun = R"({"role": "assistant", "content": "{"})";
  EXPECT_EQ(continued(begun), true);
  EXPECT_EQ(continued(R"({"role": "assistant", "content": [{"type": "text", "text": "{"}]})"),
            true);
  EXPECT_EQ(continued(begun, R"(, "continue_final_message": false)"), false);
  EXPECT_EQ(continued(begun, R"(, "add_generation_prompt": true)"), nullptr);
  EXPECT_EQ(continued(R"({"role": "assistant", "content": " "})"), nullptr);
  EXPECT_EQ(continued(R"({"role": "assistant", "content": [{"type": "text", "text": "so"},
                          {"type": "tool_use", "id": "1", "name": "f", "input": {}}]})"),
            nullptr);
  EXPECT_EQ(continued(R"({"role": "user", "content": "you"})"), nullptr);
}

TEST(MessagesToChat, MessagesOfOneRoleAreOneTurn) {
  EXPECT_EQ(chat(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "user", "content": [{"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "c"}, {"role": "assistant", "content": ""},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
      {"role": "user", "content": "d"}]})"),
            chat(R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "c"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"},
        {"type": "text", "text": "d"}]}]})"));
  const OrderedJson begun = chat(R"({"messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": "["}, {"role": "assistant", "content": "1"}]})");
  EXPECT_EQ(begun["messages"].size(), 2u);
  EXPECT_EQ(begun["continue_final_message"], true);
  EXPECT_EQ(chat(R"({"messages": [{"role": "system", "content": "a"},
      {"role": "system", "content": "b"}, {"role": "user", "content": "c"}]})")["messages"]
                .size(),
            3u);
  const auto wrong = to_chat(OrderedJson::parse(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "user", "content": [{"type": "image"}]}]})"),
                             /*counts=*/true);
  ASSERT_FALSE(wrong);
  EXPECT_TRUE(wrong.error().what.starts_with("messages[0] to [1].content")) << wrong.error().what;
}

TEST(MessagesToChat, WrongTypesAreNoOtherMeaning) {
  const auto with = [](const std::string& field) {
    return refused((R"({"messages": [{"role": "user", "content": "hi"}], )" + field + "}").c_str());
  };
  EXPECT_EQ(with(R"("tool_choice": {"type": "auto", "disable_parallel_tool_use": "x"})"),
            "tool_choice");
  EXPECT_EQ(with(R"("tools": [{"name": "f", "input_schema": 5}])"), "tools");
  EXPECT_EQ(with(R"("tools": [{"name": "f", "input_schema": null}])"), "none");
  EXPECT_EQ(with(R"("thinking": {"type": "enabled", "display": "hidden"})"), "thinking");
  EXPECT_EQ(with(R"("thinking": {"type": "enabled", "display": "omitted"})"), "none");
}

TEST(MessagesToChat, ToolsAndTheirChoice) {
  const OrderedJson out = chat(R"({"messages": [{"role": "user", "content": "hi"}],
      "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "null"}}},
      "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": true}],
      "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true}})");
  EXPECT_EQ(out["tools"][0]["function"]["parameters"]["type"], "object");
  EXPECT_EQ(out["tools"][0]["function"]["strict"], true);
  EXPECT_EQ(out["response_format"]["json_schema"]["schema"]["type"], "null");
  EXPECT_EQ(out["reasoning_effort"], "low");
  EXPECT_EQ(out["tool_choice"]["function"]["name"], "f");
  EXPECT_EQ(out["parallel_tool_calls"], false);
}

TEST(MessagesToChat, CallsOfAMessageAreBounded) {
  const auto calls = [](size_t count) {
    const OrderedJson call = {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}};
    const OrderedJson message = {{"role", "assistant"},
                                 {"content", std::vector<OrderedJson>(count, call)}};
    return OrderedJson{{"messages", OrderedJson::array({message})}}.dump();
  };
  EXPECT_EQ(refused(calls(1024).c_str()), "none");
  EXPECT_EQ(refused(calls(1025).c_str()), "messages");
}

TEST(MessagesToChat, RefusalsNameTheField) {
  EXPECT_EQ(refused(R"({})"), "messages");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": "x"}]})", false), "max_tokens");
  EXPECT_EQ(refused(R"({"messages": [{"role": "tool", "content": "x"}]})"), "messages");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": 3}]})"), "messages");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
            "messages");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "x"}]}]})"),
            "messages");
  EXPECT_EQ(refused(R"({"system": 3, "messages": [{"role": "user", "content": "x"}]})"), "system");
  EXPECT_EQ(refused(R"({"tools": [{"type": "bash_20250124", "name": "bash"}],
                        "messages": [{"role": "user", "content": "x"}]})"),
            "tools");
  EXPECT_EQ(refused(R"({"output_config": {"format": {"type": "json_schema"}},
                        "messages": [{"role": "user", "content": "x"}]})"),
            "output_config");
  EXPECT_EQ(refused(R"({"tool_choice": {"type": "tool"},
                        "messages": [{"role": "user", "content": "x"}]})"),
            "tool_choice");
}

}  // namespace
}  // namespace skiff::messages
