// What clients of the OpenAI protocol and of vLLM rely on, over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

using testing::HasSubstr;

std::string message_of(const http::ClientResponse& response) {
  return response.json()["error"]["message"].get<std::string>();
}

// openai-python indexes choices[0] of every chunk unless it asked for usage itself.
TEST(OpenAiClients, OnlyIncludeUsageSwitchesUsageOn) {
  TestServer server;
  for (const char* options :
       {R"({})", R"({"include_usage":false})", R"({"include_usage":null})",
        R"({"continuous_usage_stats":true})", R"({"include_obfuscation":true})",
        R"({"include_usage":false,"continuous_usage_stats":true})"})
    for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
      Json body = TestServer::with_messages({{"stream", true}, {"prompt", "hi"}});
      body.erase(std::string(path) == "/v1/completions" ? "messages" : "prompt");
      body["stream_options"] = Json::parse(options);
      const auto events = http::sse_events(http::post_once(server.port(), path, body).body);
      ASSERT_GT(events.size(), 2u);
      EXPECT_EQ(events.back(), "[DONE]");
      for (size_t i = 0; i + 1 < events.size(); ++i) {
        EXPECT_EQ(events[i]["choices"].size(), 1u) << options;
        EXPECT_FALSE(events[i].contains("usage")) << options;
      }
    }
}

// Python's json.dumps writes such escapes for strings with half of a surrogate pair.
TEST(OpenAiClients, ALoneSurrogateIsAReplacementCharacter) {
  TestServer server;
  const auto text = [&](const std::string& escaped) {
    const auto response =
        http::TestClient(server.port())
            .call("POST", "/v1/completions", R"({"temperature":0,"prompt":")" + escaped + "\"}");
    EXPECT_EQ(response.status, 200) << response.body;
    return response.status == 200 ? response.json()["choices"][0]["text"].get<std::string>() : "";
  };
  EXPECT_EQ(text(R"(a\ud800b)"), "a\uFFFDb");
  EXPECT_EQ(text(R"(a\uDC00b)"), "a\uFFFDb");
  EXPECT_EQ(text(R"(\udc00\ud83d)"), "\uFFFD\uFFFD");
  EXPECT_EQ(text(R"(\ud83d\ud83d\udea2)"), "\uFFFD🚢");
  EXPECT_EQ(text(R"(\ud83d\udea2)"), "🚢");
  EXPECT_EQ(text(R"(\\ud800)"), R"(\ud800)");  // not an escape of a character
}

TEST(OpenAiClients, AnErrorInAStreamIsFollowedByDone) {
  TestServer server;
  server.echo.engine.turn_microseconds = 20000;
  const auto response = server.complete(
      {{"prompt", "abcd"}, {"stream", true}, {"ignore_eos", true}, {"timeout", 0.3}});
  ASSERT_EQ(response.status, 200);
  const auto events = http::sse_events(response.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], "timeout");
}

// vLLM's names beside FastDeploy's: a chat has the prompt's ids on the response, completions have
// them on each choice; the reply's ids are on each choice.
TEST(OpenAiClients, TokenIdsHaveVllmsNamesToo) {
  TestServer server;
  const Json chat = server.chat({{"return_token_ids", true}}).json();
  EXPECT_EQ(chat["prompt_token_ids"].size(), 8u);
  EXPECT_EQ(chat["choices"][0]["token_ids"].size(), 9u);
  EXPECT_EQ(chat["choices"][0]["token_ids"], chat["choices"][0]["message"]["completion_token_ids"]);
  const Json completion =
      server.complete({{"prompt", "ab"}, {"temperature", 0}, {"return_token_ids", true}}).json();
  EXPECT_EQ(completion["choices"][0]["prompt_token_ids"], (Json{256, 'a', 'b'}));
  EXPECT_EQ(completion["choices"][0]["token_ids"], (Json{'a', 'b', 257}));
  EXPECT_FALSE(server.chat(Json::object()).json().contains("prompt_token_ids"));
}

TEST(OpenAiClients, StreamedTokenIdsHaveVllmsNamesToo) {
  TestServer server;
  const auto chat =
      http::sse_events(server.chat({{"return_token_ids", true}, {"stream", true}}).body);
  EXPECT_EQ(chat[0]["prompt_token_ids"].size(), 8u);
  Json ids = Json::array();
  for (size_t i = 0; i + 1 < chat.size(); ++i) {
    EXPECT_EQ(chat[i].contains("prompt_token_ids"), i == 0);
    for (const Json& id : chat[i]["choices"][0].value("token_ids", Json::array()))
      ids.push_back(id);
  }
  EXPECT_EQ(ids.size(), 9u);
  const auto completion = http::sse_events(
      server
          .complete(
              {{"prompt", "ab"}, {"temperature", 0}, {"return_token_ids", true}, {"stream", true}})
          .body);
  EXPECT_EQ(completion[0]["choices"][0]["prompt_token_ids"], (Json{256, 'a', 'b'}));
  EXPECT_EQ(completion[0]["choices"][0]["token_ids"], (Json{'a'}));
  EXPECT_FALSE(completion[1]["choices"][0].contains("prompt_token_ids"));
}

TEST(OpenAiClients, AnUnknownRoleIsNamed) {
  TestServer server;
  for (const char* role : {"usr", "User", "narrator", "a b", "<|im_start|>"}) {
    const Json messages{{{"role", role}, {"content", "hi"}}};
    const auto response = server.chat({{"messages", messages}});
    ASSERT_EQ(response.status, 400) << role;
    EXPECT_EQ(response.json()["error"]["param"], "messages");
    EXPECT_THAT(message_of(response), testing::AllOf(HasSubstr("messages[0]"), HasSubstr(role),
                                                     HasSubstr("user"), HasSubstr("assistant")));
    EXPECT_EQ(http::post_once(server.port(), "/tokenize", {{"messages", messages}}).status, 400);
  }
  for (const char* role :
       {"system", "developer", "user", "assistant", "tool", "function", "observation"})
    EXPECT_EQ(server.chat({{"messages", {{{"role", role}, {"content", "hi"}}}}}).status, 200)
        << role;
}

TEST(OpenAiClients, ARefusedFieldSaysWhatToUseInstead) {
  TestServer server;
  const auto functions = server.chat({{"functions", Json::array()}});
  EXPECT_EQ(functions.status, 400);
  EXPECT_THAT(message_of(functions), HasSubstr("\"tools\""));
  EXPECT_THAT(message_of(server.chat({{"function_call", "auto"}})), HasSubstr("\"tool_choice\""));
}

TEST(OpenAiClients, TemplatesOfRequestsAreRefusedUnlessTrusted) {
  TestServer server;
  const Json messages{{{"role", "user"}, {"content", "hi"}}};
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    const auto refused =
        http::post_once(server.port(), path,
                        {{"messages", messages}, {"chat_template", "{{ messages[0].content }}"}});
    ASSERT_EQ(refused.status, 400) << path;
    EXPECT_EQ(refused.json()["error"]["param"], "chat_template");
    EXPECT_THAT(message_of(refused), HasSubstr("--trust-request-chat-template"));
    // Variables for the operator's own template are allowed.
    EXPECT_EQ(
        http::post_once(server.port(), path,
                        {{"messages", messages}, {"chat_template_kwargs", {{"k", "{{ 1 }}"}}}})
            .status,
        200);
  }
}

TEST(OpenAiClients, PriorityIsRefusedUnlessTheOperatorAllowsIt) {
  TestServer server;
  for (const int priority : {-1, 1, -2147483647}) {
    const auto refused = server.complete({{"prompt", "ab"}, {"priority", priority}});
    ASSERT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "priority");
    EXPECT_THAT(message_of(refused), HasSubstr("--scheduling-policy priority"));
  }
  EXPECT_EQ(server.complete({{"prompt", "ab"}, {"priority", 0}, {"temperature", 0}}).status, 200);
}

std::string salt_of(TestServer& server, const std::string& headers, const Json& extra = {}) {
  Json body{{"prompt", "ab"}, {"temperature", 0}};
  if (extra.is_object()) body.update(extra);
  const auto response =
      http::TestClient(server.port()).call("POST", "/v1/completions", body.dump(), headers);
  EXPECT_EQ(response.status, 200) << response.body;
  return server.echo.engine.seen().back().cache.salt;
}

// The time to the first token reveals whether a prefix was cached: the owner of one key must not
// learn the prompts of another.
TEST(OpenAiClients, EachOfSeveralKeysHasItsOwnCache) {
  serve::ServerConfig config = local_config();
  config.api_keys = {"first-key", "second-key"};
  TestServer server(config);
  const std::string first = "Authorization: Bearer first-key\r\n",
                    second = "x-api-key: second-key\r\n";
  const std::string one = salt_of(server, first), two = salt_of(server, second);
  EXPECT_FALSE(one.empty());
  EXPECT_FALSE(two.empty());
  EXPECT_NE(one, two);
  EXPECT_EQ(salt_of(server, first), one);
  EXPECT_EQ(salt_of(server, "x-api-key: first-key\r\n"), one);
  for (const std::string& salt : {one, two}) EXPECT_THAT(salt, testing::Not(HasSubstr("key")));
  // A key that does not open the server does not select the cache either.
  EXPECT_EQ(salt_of(server, "Authorization: Bearer second\r\nx-api-key: first-key\r\n"), one);
  // A client's own salt divides the cache of its key, and reaches no other key's.
  const Json own{{"cache_salt", "s"}};
  EXPECT_NE(salt_of(server, first, own), one);
  EXPECT_NE(salt_of(server, first, own), salt_of(server, second, own));
  EXPECT_NE(salt_of(server, first, Json{{"cache_salt", two}}), two);
}

TEST(OpenAiClients, OneKeyOrNoneLeavesTheCacheAsItIs) {
  for (const char* key : {"", "only"}) {
    serve::ServerConfig config = local_config();
    if (*key) config.api_keys = {key};
    TestServer server(config);
    const std::string header = *key ? "x-api-key: only\r\n" : "";
    EXPECT_EQ(salt_of(server, header), "");
    EXPECT_EQ(salt_of(server, header, {{"cache_salt", "s"}}), "s");
  }
}

// Tokens wait for a full event, and for a stop string that the next one may complete; when time
// runs out the client still gets them.
TEST(OpenAiClients, ATimeoutTellsWhatWasHeldBack) {
  TestServer server;
  server.echo.engine.turn_microseconds = 10000;
  for (const Json& held : {Json{{"max_streaming_response_tokens", 1000}},
                           Json{{"stop", "abcdabcdabcdabcdabcd!"}, {"n", 2}}}) {
    Json body{{"prompt", "abcd"}, {"stream", true},   {"ignore_eos", true},
              {"timeout", 0.3},   {"temperature", 0}, {"n", 1}};
    body.update(held);
    const auto response = server.complete(body);
    ASSERT_EQ(response.status, 200) << response.body;
    const auto events = http::sse_events(response.body);
    std::vector<std::string> texts(2);
    Json error;
    for (const Json& event : events) {
      if (!event.is_object()) continue;
      if (event.contains("error")) {
        error = event["error"];
        continue;
      }
      EXPECT_TRUE(error.is_null());
      const Json& choice = event["choices"][0];
      texts.at(choice["index"].get<size_t>()) += choice["text"].get<std::string>();
    }
    ASSERT_FALSE(error.is_null()) << response.body;
    EXPECT_EQ(error["code"], "timeout");
    // The message counts the tokens of all n together; one byte is one token.
    const std::string message = error["message"];
    EXPECT_THAT(message, HasSubstr(fmt::format("; {} tokens were generated",
                                               texts[0].size() + texts[1].size())));
    EXPECT_GT(texts[0].size(), 4u);
  }
}

}  // namespace
}  // namespace skiff::openai
