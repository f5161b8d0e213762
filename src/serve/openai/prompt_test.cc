// The input of a body: messages, prompts, token ids, and the variables of the template.
#include "serve/openai/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::openai {
namespace {

Result<OpenAiCall> parse(Endpoint endpoint, const std::string& text) {
  const auto body = parse_ordered_json(text, {});
  SKIFF_CHECK(body, "a test's body: {}", text);
  return parse_openai_call(*body, endpoint, {});
}

text::Conversation conversation(const std::string& fields) {
  auto call = parse(Endpoint::kChat,
                    fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}]{}}})", fields));
  SKIFF_CHECK(call, "{}", call.error().what);
  return std::get<text::Conversation>(call->prompts.at(0));
}

std::string refusal(const std::string& body, Endpoint endpoint = Endpoint::kChat) {
  const auto call = parse(endpoint, body);
  return call ? "none" : call.error().field;
}

TEST(OpenAiPrompt, PromptsInEveryForm) {
  const auto prompts = [](const std::string& value) {
    return parse(Endpoint::kCompletions, fmt::format("{{\"prompt\":{}}}", value))->prompts;
  };
  using Ids = std::vector<Token>;
  EXPECT_EQ(std::get<std::string>(prompts("\"\"").at(0)), "");
  EXPECT_EQ(std::get<Ids>(prompts("[1,2.0,3]").at(0)), (Ids{1, 2, 3}));
  EXPECT_EQ(prompts("[\"a\",\"b\"]").size(), 2u);
  EXPECT_EQ(std::get<Ids>(prompts("[[1],[2,3]]").at(1)), (Ids{2, 3}));
  EXPECT_EQ(prompts("[\"a\",[2]]").size(), 2u);
}

TEST(OpenAiPrompt, ParametersOfToolsAreSchemas) {
  const auto with = [](const std::string& parameters) {
    return refusal(fmt::format(
        R"({{"messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function",
            "function":{{"name":"f","parameters":{}}}}}]}})",
        parameters));
  };
  for (const char* good : {"null", "{}", R"({"type":"object","properties":{"a":{}}})"})
    EXPECT_EQ(with(good), "none") << good;
  for (const char* bad :
       {"\"x\"", "[1]", "5", "true", R"({"properties":[1]})", R"({"properties":null})"})
    EXPECT_EQ(with(bad), "tools") << bad;
}

// Prompts without content are refused. "" and [[]] are checked once they are tokens.
TEST(OpenAiPrompt, Item29EmptyListsAreNoPrompts) {
  for (const char* bad : {"[]", "{}", "5", "true", "[null]", "[1,\"a\"]", "[\"a\",1]", "[[\"a\"]]",
                          "[[[1]]]", "[1.5]", "[-1]", "[2147483648]", "[true]"})
    EXPECT_EQ(refusal(fmt::format("{{\"prompt\":{}}}", bad), Endpoint::kCompletions), "prompt")
        << bad;
  const auto missing = parse(Endpoint::kCompletions, "{}");
  EXPECT_EQ(missing.error().code, Code::kNotFound);
}

TEST(OpenAiPrompt, TokenIdsWinOverMessages) {
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])";
  for (const std::string& body : {std::string(R"({"prompt_token_ids":[1,2]})"),
                                  std::string(R"({"messages":[],"prompt_token_ids":[1,2]})"),
                                  fmt::format("{{{},\"prompt_token_ids\":[1,2]}}", messages),
                                  std::string(R"({"messages":[1,2]})")})
    EXPECT_EQ(std::get<std::vector<Token>>(parse(Endpoint::kChat, body)->prompts.at(0)),
              (std::vector<Token>{1, 2}));
  EXPECT_EQ(refusal(R"({"prompt_token_ids":[[1],[2]]})"), "prompt_token_ids");
  EXPECT_EQ(refusal(R"({"prompt_token_ids":[1,"a"]})"), "prompt_token_ids");
  EXPECT_EQ(refusal(R"({"prompt_token_ids":5})"), "prompt_token_ids");
  EXPECT_EQ(refusal(R"({"prompt_token_ids":[]})"), "messages");
  EXPECT_EQ(parse(Endpoint::kCompletions, R"({"prompt_token_ids":[[1],[2]]})")->prompts.size(), 2u);
  EXPECT_EQ(refusal(R"({"prompt_token_ids":[[1],[]]})", Endpoint::kCompletions),
            "prompt_token_ids");
}

TEST(OpenAiPrompt, BegunRepliesAndTruncation) {
  const auto call = parse(Endpoint::kCompletions, R"({"prompt":"x","completion_token_ids":[5,6],)"
                                                  R"("truncate_prompt_tokens":-1})");
  EXPECT_EQ(call->request.begun, (std::vector<Token>{5, 6}));
  EXPECT_EQ(call->request.truncate_prompt, -1);
  for (const char* bad : {"0", "-2", "1.5", "\"1\""})
    EXPECT_EQ(refusal(fmt::format(R"({{"prompt":"x","truncate_prompt_tokens":{}}})", bad),
                      Endpoint::kCompletions),
              "truncate_prompt_tokens");
}

TEST(OpenAiPrompt, TheTemplateIsToldWhatToPrint) {
  EXPECT_TRUE(conversation("").add_generation_prompt);
  EXPECT_FALSE(conversation(R"(,"add_generation_prompt":false)").add_generation_prompt);
  EXPECT_EQ(conversation(R"(,"documents":[{"title":"t"}])").kwargs.dump(),
            R"({"documents":[{"title":"t"}]})");
  EXPECT_EQ(conversation(R"(,"reasoning_effort":"low")").kwargs["reasoning_effort"], "low");
  EXPECT_EQ(conversation(R"(,"chat_template_kwargs":{"reasoning_effort":"x"},)"
                         R"("reasoning_effort":"low")")
                .kwargs["reasoning_effort"],
            "x");
  EXPECT_EQ(conversation(R"(,"tools":[{"type":"function","function":{"name":"f"}}])").tools.size(),
            1u);
  EXPECT_TRUE(conversation(R"(,"tool_choice":"none","tools":[{"type":"function",)"
                           R"("function":{"name":"f"}}])")
                  .tools.is_null());
}

// Variables that the server sets cannot be replaced by a request.
TEST(OpenAiPrompt, Item12ReservedVariablesAreRefused) {
  const std::string head = R"({"messages":[{"role":"user","content":"x"}],)";
  for (const char* name :
       {"messages", "tools", "tokenize", "add_generation_prompt", "continue_final_message",
        "chat_template", "bos_token", "eos_token", "return_dict", "raise_exception"}) {
    const auto refused = parse(
        Endpoint::kChat, fmt::format("{}\"chat_template_kwargs\":{{\"{}\":true}}}}", head, name));
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().field, "chat_template_kwargs");
    EXPECT_THAT(refused.error().what, testing::HasSubstr(name));
  }
  std::string many;
  for (int i = 0; i < 300; ++i) many += fmt::format("{}\"k{}\":1", i ? "," : "", i);
  EXPECT_EQ(refusal(fmt::format("{}\"chat_template_kwargs\":{{{}}}}}", head, many)),
            "chat_template_kwargs");
}

TEST(OpenAiPrompt, AFinalMessageCanBeContinued) {
  const auto with = [](const std::string& last, const std::string& fields) {
    return fmt::format(
        R"({{"messages":[{{"role":"user","content":"x"}},{}],"continue_final_message":true{}}})",
        last, fields);
  };
  const std::string begun = R"({"role":"assistant","content":"y"})";
  const auto call = parse(Endpoint::kChat, with(begun, ""));
  const text::Conversation& conversation = std::get<text::Conversation>(call->prompts.at(0));
  EXPECT_TRUE(conversation.continue_final_message);
  EXPECT_FALSE(conversation.add_generation_prompt);
  EXPECT_EQ(refusal(with(begun, R"(,"add_generation_prompt":false)")), "none");
  EXPECT_EQ(refusal(with(begun, R"(,"add_generation_prompt":true)")), "continue_final_message");
  for (const char* last :
       {R"({"role":"user","content":"y"})", R"({"role":"assistant"})",
        R"({"role":"assistant","content":null})", R"({"role":"assistant","content":""})"})
    EXPECT_EQ(refusal(with(last, "")), "continue_final_message");
}

// OpenAI's clients send null beside calls, and templates know only text.
TEST(OpenAiPrompt, NullContentIsAnEmptyText) {
  const std::string calls =
      R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}])";
  for (const std::string& message :
       {R"({"role":"assistant","content":null,)" + calls + "}",
        R"({"role":"assistant",)" + calls + "}",
        std::string(R"({"role":"assistant","content":null,"reasoning":"r"})"),
        std::string(R"({"role":"tool","tool_call_id":"c","content":null})")}) {
    const auto call = parse(Endpoint::kChat, fmt::format("{{\"messages\":[{}]}}", message));
    ASSERT_TRUE(call) << call.error().what;
    EXPECT_EQ(std::get<text::Conversation>(call->prompts.at(0)).messages[0]["content"], "")
        << message;
  }
}

// Only typed parts could fetch anything, and those are refused.
TEST(OpenAiPrompt, Item49LinksInTextStayText) {
  const std::string text = "![x](http://127.0.0.1:1/x.png) <img src='file:///etc/passwd'>";
  const auto call = parse(
      Endpoint::kChat, OrderedJson{{"messages", {{{"role", "user"}, {"content", text}}}}}.dump());
  EXPECT_EQ(std::get<text::Conversation>(call->prompts.at(0)).messages[0]["content"], text);
  for (const char* type : {"image_url", "video_url", "input_audio", "file", "image", "TEXT", ""}) {
    const OrderedJson part{{"type", type}, {type, {{"url", "http://127.0.0.1:1/"}}}};
    const OrderedJson body{
        {"messages", {{{"role", "user"}, {"content", OrderedJson::array({part})}}}}};
    EXPECT_EQ(refusal(body.dump()), "messages") << type;
  }
}

TEST(OpenAiPrompt, PartsBecomeOneText) {
  const auto call =
      parse(Endpoint::kChat, R"({"messages":[{"role":"assistant","content":[)"
                             R"({"type":"text","text":"a"},{"type":"refusal","refusal":"b"}]}]})");
  EXPECT_EQ(std::get<text::Conversation>(call->prompts.at(0)).messages[0]["content"], "a\nb");
}

TEST(OpenAiPrompt, TheTemplateCanBeLeftOut) {
  const auto call =
      parse(Endpoint::kChat,
            R"({"messages":[{"role":"user","content":"raw"}],"disable_chat_template":true})");
  EXPECT_EQ(std::get<std::string>(call->prompts.at(0)), "raw");
}

TEST(OpenAiPrompt, NoCallIsForcedWithoutTheTemplate) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string one = R"({"type":"function","function":{"name":"f"}})";
  for (const char* prompt :
       {R"("prompt_token_ids":[1,2])", R"("messages":[1,2])",
        R"("messages":[{"role":"user","content":"raw"}],"disable_chat_template":true)"}) {
    const auto with = [&](const std::string& choice) {
      return refusal(fmt::format(R"({{{},{},"tool_choice":{}}})", prompt, tools, choice));
    };
    for (const std::string& forced : {std::string(R"("required")"), one})
      EXPECT_EQ(with(forced), "tool_choice") << prompt;
    for (const char* free : {R"("auto")", R"("none")"}) EXPECT_EQ(with(free), "none") << prompt;
  }
}

// A tool is printed, never compiled; anything else is refused.
TEST(OpenAiPrompt, Item34MalformedToolsAreRefused) {
  const std::string head = R"({"messages":[{"role":"user","content":"x"}],"tools":)";
  for (const char* bad :
       {"5", "{}", "[5]", "[{}]", R"([{"type":"function"}])",
        R"([{"type":"function","function":{}}])", R"([{"type":"function","function":{"name":5}}])"})
    EXPECT_EQ(refusal(fmt::format("{}{}}}", head, bad)), "tools") << bad;
  const auto named = [&](size_t bytes) {
    return refusal(fmt::format(R"({}[{{"type":"function","function":{{"name":"{}"}}}}]}})", head,
                               std::string(bytes, 'f')));
  };
  EXPECT_EQ(named(256), "none");
  EXPECT_EQ(named(257), "tools");
  EXPECT_EQ(refusal(head + R"([{"type":"function","function":{"name":"f","parameters":)"
                           R"({"type":5,"pattern":"(((","$ref":"#"}}}]})"),
            "none");
}

}  // namespace
}  // namespace skiff::openai
