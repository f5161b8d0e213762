#include "serve/ollama/to_chat.h"

#include <gtest/gtest.h>

namespace skiff::ollama {
namespace {

OrderedJson translated(const char* body, Endpoint endpoint = Endpoint::kChat) {
  const auto out = to_chat(OrderedJson::parse(body), endpoint);
  EXPECT_TRUE(out) << (out ? "" : out.error().what);
  return out ? *out : OrderedJson();
}

std::string refused(const char* body, Endpoint endpoint = Endpoint::kChat) {
  const auto out = to_chat(OrderedJson::parse(body), endpoint);
  return out ? "none" : out.error().field;
}

TEST(OllamaToChat, OptionsGetTheirNamesInAChat) {
  const OrderedJson out = translated(R"({"model": "demo:latest", "keep_alive": "5m",
      "messages": [{"role": "user", "content": "hi"}],
      "options": {"temperature": 0, "num_predict": 7, "repeat_penalty": 1.1, "seed": 3, "num_ctx": 4096,
                  "stop": ["x"], "mirostat": 0, "tfs_z": 1.0, "typical_p": 1}})");
  EXPECT_EQ(out, OrderedJson::parse(R"({"model": "demo", "stream": true,
      "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 7,
      "repetition_penalty": 1.1, "seed": 3, "stop": ["x"]})"));
  const OrderedJson endless = translated(
      R"({"messages": [], "stream": false, "options": {"num_predict": -1, "seed": -1}})");
  EXPECT_EQ(endless, OrderedJson::parse(R"({"stream": false, "messages": []})"));
  for (const char* none : {"0", "-2", "0.0"})
    EXPECT_FALSE(
        translated(
            (std::string(R"({"messages": [], "options": {"num_predict": )") + none + "}}").c_str())
            .contains("max_tokens"))
        << none;
}

TEST(OllamaToChat, ResultsOfToolsFindTheirCalls) {
  const OrderedJson out = translated(R"({"messages": [
      {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
        {"function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "g"}},
        {"function": {"name": "f", "arguments": {"a": 2}}}]},
      {"role": "tool", "tool_name": "g", "content": "of g"},
      {"role": "tool", "content": "of the first f"},
      {"role": "tool", "tool_name": "f", "content": "of the second f"},
      {"role": "tool", "content": "of none"}]})")["messages"];
  EXPECT_EQ(out[0]["reasoning_content"], "hm");
  const OrderedJson& calls = out[0]["tool_calls"];
  EXPECT_EQ(calls[2]["function"], OrderedJson::parse(R"({"name": "f", "arguments": {"a": 2}})"));
  EXPECT_EQ(out[1]["tool_call_id"], calls[1]["id"]);
  EXPECT_EQ(out[2]["tool_call_id"], calls[0]["id"]);
  EXPECT_EQ(out[3]["tool_call_id"], calls[2]["id"]);
  EXPECT_FALSE(out[4].contains("tool_call_id"));
}

TEST(OllamaToChat, AMessageOfTheAssistantAtTheEndIsContinued) {
  const OrderedJson out = translated(R"({"messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": "{"}]})");
  EXPECT_EQ(out["continue_final_message"], true);
}

TEST(OllamaToChat, PromptsAreMessages) {
  const OrderedJson out = translated(R"({"prompt": "p", "system": "s", "think": false,
      "format": {"type": "object"}})",
                                     Endpoint::kGenerate);
  EXPECT_EQ(out["messages"], OrderedJson::parse(R"([{"role": "system", "content": "s"},
                                                    {"role": "user", "content": "p"}])"));
  EXPECT_EQ(out["enable_thinking"], false);
  EXPECT_EQ(out["response_format"]["json_schema"]["schema"],
            OrderedJson::parse(R"({"type": "object"})"));
  const OrderedJson raw =
      translated(R"({"prompt": "p", "raw": true, "format": "json"})", Endpoint::kGenerate);
  EXPECT_EQ(raw["disable_chat_template"], true);
  EXPECT_EQ(raw["messages"].size(), 1u);
  EXPECT_EQ(raw["response_format"]["type"], "json_object");
}

// The body of Ollama's client in Go, which leaves out no field of a prompt.
TEST(OllamaToChat, EmptyFieldsCountAsAbsent) {
  const OrderedJson out = translated(R"({"model": "demo", "prompt": "hi", "suffix": "",
      "system": "", "template": "", "context": [], "options": null, "stream": false})",
                                     Endpoint::kGenerate);
  EXPECT_EQ(out, OrderedJson::parse(R"({"model": "demo", "stream": false,
      "messages": [{"role": "user", "content": "hi"}]})"));
}

TEST(OllamaToChat, WrongTypesAreNoOtherMeaning) {
  EXPECT_EQ(refused(R"({"model": 5, "messages": []})"), "model");
  EXPECT_EQ(refused(R"({"name": ["demo"], "messages": []})"), "name");
  EXPECT_EQ(refused(R"({"prompt": "p", "raw": "x"})", Endpoint::kGenerate), "raw");
  EXPECT_EQ(refused(R"({"prompt": "p", "suffix": 0})", Endpoint::kGenerate), "suffix");
}

TEST(OllamaToChat, RefusesByName) {
  EXPECT_EQ(refused(R"({})"), "messages");
  EXPECT_EQ(refused(R"({})", Endpoint::kGenerate), "prompt");
  EXPECT_EQ(refused(R"({"prompt": "p", "suffix": "s"})", Endpoint::kGenerate), "suffix");
  EXPECT_EQ(refused(R"({"prompt": "p", "images": ["aGk="]})", Endpoint::kGenerate), "images");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": ["x"]}]})"), "messages");
  EXPECT_EQ(refused(R"({"messages": [], "format": 3})"), "format");
  EXPECT_EQ(refused(R"({"messages": [], "think": 3})"), "think");
  EXPECT_EQ(refused(R"({"messages": [], "options": {"mirostat": 2}})"), "options");
  EXPECT_EQ(refused(R"({"messages": [], "options": []})"), "options");
}

TEST(OllamaToChat, CallsOfAMessageAreBounded) {
  const auto calls = [](size_t count) {
    const OrderedJson call = {{"function", {{"name", "f"}}}};
    const OrderedJson message = {{"role", "assistant"},
                                 {"content", ""},
                                 {"tool_calls", std::vector<OrderedJson>(count, call)}};
    return OrderedJson{{"messages", OrderedJson::array({message})}}.dump();
  };
  EXPECT_EQ(refused(calls(1024).c_str()), "none");
  EXPECT_EQ(refused(calls(1025).c_str()), "messages");
}

TEST(OllamaToChat, NothingToAnswerLoadsTheModel) {
  const auto loads = [](const char* body, Endpoint endpoint) {
    return only_loads(OrderedJson::parse(body), endpoint);
  };
  EXPECT_TRUE(loads(R"({"model": "m"})", Endpoint::kChat));
  EXPECT_TRUE(loads(R"({"messages": []})", Endpoint::kChat));
  EXPECT_TRUE(loads(R"({"prompt": ""})", Endpoint::kGenerate));
  EXPECT_FALSE(loads(R"({"messages": [{}]})", Endpoint::kChat));
  EXPECT_FALSE(loads(R"({"prompt": "x"})", Endpoint::kGenerate));
  EXPECT_FALSE(loads(R"({"messages": 3})", Endpoint::kChat));
}

}  // namespace
}  // namespace skiff::ollama
