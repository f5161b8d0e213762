// POST /tokenize and /detokenize.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

std::string text_of(const Json& ids) {
  std::string text;
  for (const Json& id : ids)
    text += id.get<int>() < 256 ? std::string(1, static_cast<char>(id.get<int>()))
                                : fmt::format("[{}]", id.get<int>());
  return text;
}

class Tokenize : public testing::Test {
 protected:
  http::ClientResponse post(const std::string& path, const Json& body) {
    return http::post_once(server_.port(), path, body);
  }
  std::string tokens(const Json& body) { return text_of(post("/tokenize", body).json()["tokens"]); }
  static serve::ServerConfig trusting() {
    serve::ServerConfig config = local_config();
    config.policy.trust_chat_template = true;
    return config;
  }
  TestServer server_{trusting()};
};

TEST_F(Tokenize, TextAndBack) {
  for (const char* path : {"/tokenize", "/v1/tokenize"}) {
    const Json json = post(path, {{"model", "echo"}, {"prompt", "aü"}}).json();
    EXPECT_EQ(json, (Json{{"count", 4},
                          {"max_model_len", 512},
                          {"tokens", {256, 97, 0xc3, 0xbc}},
                          {"token_strs", nullptr}}));
  }
  const Json plain = {{"prompt", "a</s>"}, {"add_special_tokens", false}};
  EXPECT_EQ(tokens(plain), "a[257]");
  for (const char* path : {"/detokenize", "/v1/detokenize"})
    EXPECT_EQ(post(path, {{"tokens", {256, 97, 0xc3, 0xbc}}}).json(), (Json{{"prompt", "<s>aü"}}));
  EXPECT_EQ(post("/detokenize", {{"tokens", Json::array()}}).json()["prompt"], "");
}

TEST_F(Tokenize, StringsOfTokens) {
  const Json json = post("/tokenize", {{"prompt", "aü"}, {"return_token_strs", true}}).json();
  EXPECT_EQ(json["token_strs"], (Json{"<s>", "a", "\\xc3", "\\xbc"}));
}

TEST_F(Tokenize, Conversations) {
  const Json messages = {{{"role", "user"}, {"content", "hi"}},
                         {{"role", "assistant"}, {"content", "he"}}};
  EXPECT_EQ(tokens({{"messages", messages}}), "user:hi;assistant:he;");
  EXPECT_EQ(tokens({{"messages", messages}, {"add_generation_prompt", false}}),
            "user:hi;assistant:he;end");
  EXPECT_EQ(tokens({{"messages", messages}, {"continue_final_message", true}}),
            "user:hi;assistant:he");
  EXPECT_EQ(tokens({{"messages", messages}, {"add_special_tokens", true}}),
            "[256]user:hi;assistant:he;");
  EXPECT_EQ(tokens({{"messages", messages}, {"chat_template_kwargs", {{"k", 1}}}}),
            "user:hi;assistant:he;kwargs:{\"k\":1}");
  EXPECT_EQ(tokens({{"messages", messages}, {"chat_template", "{{ messages[0].content }}"}}), "hi");
}

// Whatever changes the prompt of a chat changes the count.
TEST_F(Tokenize, ConversationsHaveTheFieldsOfAChat) {
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  const auto with = [&](Json body) {
    body["messages"] = messages;
    return tokens(body);
  };
  const std::string thinks = with({{"chat_template_kwargs", {{"enable_thinking", true}}}});
  EXPECT_THAT(thinks, testing::HasSubstr("\"enable_thinking\":true"));
  EXPECT_EQ(with({{"enable_thinking", true}}), thinks);
  EXPECT_THAT(with({{"reasoning_effort", "low"}}),
              testing::HasSubstr("\"reasoning_effort\":\"low\""));
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  EXPECT_EQ(with({{"tools", tools}, {"tool_choice", "none"}}), with({}));
}

TEST(TokenizeStrict, UnknownFieldsAreRefused) {
  serve::ServerConfig config = local_config();
  config.refuse_unknown_fields = true;
  TestServer server(std::move(config));
  const auto refused = [&](const char* path, Json body) {
    body["promt"] = 1;
    const Json error = http::post_once(server.port(), path, body).json()["error"];
    EXPECT_EQ(error["code"], "unknown_parameter") << body;
    return error["param"];
  };
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(refused("/tokenize", {{"prompt", "x"}}), "promt");
  EXPECT_EQ(refused("/tokenize", {{"messages", messages}}), "promt");
  EXPECT_EQ(refused("/detokenize", {{"tokens", {1}}}), "promt");
  for (const Json& known : {Json{{"model", "echo"}, {"prompt", "x"}, {"return_token_strs", true}},
                            Json{{"messages", messages}, {"return_token_strs", true}}})
    EXPECT_EQ(http::post_once(server.port(), "/tokenize", known).status, 200) << known;
}

TEST_F(Tokenize, LongerThanTheContextIsStillCounted) {
  EXPECT_EQ(post("/tokenize", {{"prompt", std::string(5000, 'x')}}).json()["count"], 5001);
}

// The text of a reply is bounded, because one id may stand for many bytes.
TEST_F(Tokenize, TextOfTokensHasABound) {
  const auto detokenize = [&](size_t count) {
    return post("/detokenize", {{"tokens", std::vector<int>(count, 'x')}});
  };
  const auto most = detokenize(1 << 20);
  ASSERT_EQ(most.status, 200);
  EXPECT_EQ(most.json()["prompt"].get<std::string>().size(), 1u << 20);
  const auto more = detokenize((1 << 20) + 1);
  ASSERT_EQ(more.status, 400);
  EXPECT_EQ(more.json()["error"]["param"], "tokens");
  EXPECT_THAT(more.json()["error"]["message"].get<std::string>(),
              testing::AllOf(testing::HasSubstr("1048577"), testing::HasSubstr("1048576")));
}

TEST_F(Tokenize, IsWhatARequestGets) {
  const Json messages = {{{"role", "user"}, {"content", "a</s>b"}}};
  const Json counted = post("/tokenize", {{"messages", messages}}).json();
  const Json reply =
      server_.chat({{"messages", messages}, {"return_token_ids", true}}).json()["choices"][0];
  EXPECT_EQ(counted["tokens"], reply["message"]["prompt_token_ids"]);
}

TEST_F(Tokenize, BadRequestsAreNamed) {
  struct Case {
    const char* path;
    Json body;
    const char* param;
  };
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  const Case cases[] = {
      {"/tokenize", Json::object(), "prompt"},
      {"/tokenize", {{"prompt", 5}}, "prompt"},
      {"/tokenize", {{"prompt", nullptr}}, "prompt"},
      {"/tokenize", {{"messages", messages}, {"enable_thinking", "yes"}}, "enable_thinking"},
      {"/tokenize", {{"prompt", Json::array({"a"})}}, "prompt"},
      {"/tokenize", {{"prompt", "x"}, {"messages", messages}}, "prompt"},
      {"/tokenize", {{"prompt", "x"}, {"add_special_tokens", 1}}, "add_special_tokens"},
      {"/tokenize", {{"prompt", "x"}, {"return_token_strs", "yes"}}, "return_token_strs"},
      {"/tokenize", {{"messages", Json::array()}}, "messages"},
      {"/tokenize", {{"messages", {{{"role", "bad"}, {"content", "x"}}}}}, "messages"},
      {"/tokenize",
       {{"messages", messages}, {"continue_final_message", true}},
       "continue_final_message"},
      {"/tokenize", {{"messages", messages}, {"chat_template", "{% for %}"}}, "chat_template"},
      {"/tokenize", {{"messages", messages}, {"tools", 5}}, "tools"},
      {"/detokenize", Json::object(), "tokens"},
      {"/detokenize", {{"tokens", "abc"}}, "tokens"},
      {"/detokenize", {{"tokens", {-1}}}, "tokens"},
      {"/detokenize", {{"tokens", {258}}}, "tokens"},
      {"/detokenize", {{"tokens", {1.5}}}, "tokens"},
  };
  for (const Case& c : cases) {
    const http::ClientResponse response = post(c.path, c.body);
    EXPECT_EQ(response.status, 400) << c.body;
    EXPECT_EQ(response.json()["error"]["param"], c.param) << response.body;
  }
  for (const char* path : {"/tokenize", "/detokenize"}) {
    EXPECT_EQ(post(path, Json::array()).status, 400);
    const http::ClientResponse unknown =
        post(path, {{"model", "nope"}, {"prompt", "x"}, {"tokens", {1}}});
    EXPECT_EQ(unknown.status, 404);
    EXPECT_EQ(unknown.json()["error"]["code"], "model_not_found");
  }
}

}  // namespace
}  // namespace skiff::openai
