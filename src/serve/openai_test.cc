// The OpenAI endpoints over real sockets, on an engine that repeats its prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "serve/server.h"
#include "serve/test_client.h"
#include "serve/test_engine.h"

namespace skiff {
namespace {

ServerConfig local_config() {
  ServerConfig config;
  config.http.host = "127.0.0.1";
  config.http.port = 0;
  config.model_names = {"echo", "echo-alias"};
  config.model_path = "/models/echo";
  return config;
}

struct Running {
  explicit Running(ServerConfig config = local_config()) : server(std::move(config), echo.service) {
    server.start();
  }
  uint16_t port() const { return server.port(); }
  ClientResponse chat(Json body) {
    return post_once(port(), "/v1/chat/completions", with_messages(body));
  }
  ClientResponse complete(const Json& body) { return post_once(port(), "/v1/completions", body); }
  static Json with_messages(Json body) {
    if (!body.contains("messages")) body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
    if (!body.contains("temperature")) body["temperature"] = 0;
    return body;
  }
  EchoService echo;
  Server server;
};

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 500; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(OpenAiTest, ChatAnswersInOnePiece) {
  Running server;
  const auto response = server.chat({{"model", "echo"}});
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "echo");
  EXPECT_EQ(json["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "user:hi;");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(json["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(json["usage"]["completion_tokens"], 9);  // with </s>
  EXPECT_EQ(json["usage"]["total_tokens"], 17);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST(OpenAiTest, ChatStreams) {
  Running server;
  const auto response =
      server.chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto events = sse_events(response.body);
  ASSERT_GE(events.size(), 5u);
  EXPECT_EQ(events.front()["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(events.back(), "[DONE]");
  const Json& usage = events[events.size() - 2];
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 9);
  const Json& last = events[events.size() - 3]["choices"][0];
  EXPECT_EQ(last["delta"], Json::object());
  EXPECT_EQ(last["finish_reason"], "stop");
  std::string text;
  for (size_t i = 1; i + 3 < events.size(); ++i) {
    EXPECT_EQ(events[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    EXPECT_TRUE(events[i]["usage"].is_null());
    EXPECT_TRUE(events[i]["choices"][0]["finish_reason"].is_null());
    text += events[i]["choices"][0]["delta"]["content"].get<std::string>();
  }
  EXPECT_EQ(text, "user:hi;");
}

TEST(OpenAiTest, UsageInEveryChunkIfAsked) {
  Running server;
  const auto response =
      server.chat({{"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}});
  const auto events = sse_events(response.body);
  int before = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const int now = events[i]["usage"]["completion_tokens"].get<int>();
    EXPECT_GE(now, before);
    before = now;
  }
  EXPECT_EQ(before, 9);
}

TEST(OpenAiTest, StreamsNeverCutACharacter) {
  Running server;
  const std::string text = "grüße 日本 🚢";
  const auto response = server.complete({{"prompt", text}, {"temperature", 0}, {"stream", true}});
  std::string joined;
  for (const Json& event : sse_events(response.body))
    if (event.is_object()) joined += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(joined, text);
}

TEST(OpenAiTest, StopStringEndsTheReplyAndFreesTheEngine) {
  Running server;
  for (bool include : {false, true}) {
    const auto response = server.complete({{"prompt", "one two three"},
                                           {"temperature", 0},
                                           {"ignore_eos", true},
                                           {"stop", {"zzz", "wo t"}},
                                           {"include_stop_str_in_output", include}});
    const Json choice = response.json()["choices"][0];
    EXPECT_EQ(choice["text"], include ? "one two t" : "one t");
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["stop_reason"], "wo t");
    EXPECT_EQ(response.json()["usage"]["completion_tokens"], 9);
    EXPECT_TRUE(eventually([&] { return server.echo.engine.running() == 0; }));
  }
}

TEST(OpenAiTest, StopTokenIsToldAndLeavesNoText) {
  Running server;
  const auto response = server.complete({{"prompt", "abc"},
                                         {"temperature", 0},
                                         {"stop_token_ids", {int{'c'}}},
                                         {"return_token_ids", true}});
  const Json choice = response.json()["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["stop_reason"], int{'c'});
  EXPECT_EQ(choice["completion_token_ids"], (Json{'a' + 0, 'b' + 0, 'c' + 0}));
  EXPECT_EQ(choice["prompt_token_ids"], (Json{256, 'a' + 0, 'b' + 0, 'c' + 0}));
}

TEST(OpenAiTest, SeedsOfTheChoicesFollowEachOther) {
  Running server;
  const Json body{{"prompt", "abcd"}, {"seed", 1}, {"n", 3}};
  const Json json = server.complete(body).json();
  ASSERT_EQ(json["choices"].size(), 3u);
  EXPECT_EQ(json["choices"][0]["text"], "bcda");
  EXPECT_EQ(json["choices"][1]["text"], "cdab");
  EXPECT_EQ(json["choices"][2]["text"], "dabc");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json["usage"]["completion_tokens"], 15);
}

TEST(OpenAiTest, ListsOfPromptsMakeChoicesInOrder) {
  Running server;
  const Json json =
      server.complete({{"prompt", {"ab", "cde"}}, {"n", 2}, {"temperature", 0}}).json();
  ASSERT_EQ(json["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], i < 2 ? "ab" : "cde");
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3 + 4);
  const Json ids = server.complete({{"prompt", {{97, 98}, {99}}}, {"temperature", 0}}).json();
  EXPECT_EQ(ids["choices"][1]["text"], "c");
  const Json one = server.complete({{"prompt", {97, 98}}, {"temperature", 0}}).json();
  EXPECT_EQ(one["choices"][0]["text"], "ab");
}

TEST(OpenAiTest, ChatLogprobs) {
  Running server;
  const Json json =
      server.chat({{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 2}}).json();
  const Json& content = json["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["token"], "u");
  EXPECT_FLOAT_EQ(content[0]["logprob"].get<float>(), -0.5f);
  EXPECT_EQ(content[0]["bytes"], Json{int{'u'}});
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "v");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
}

TEST(OpenAiTest, CompletionLogprobsWithEcho) {
  Running server;
  for (bool stream : {false, true}) {
    const auto response = server.complete({{"prompt", "aü"},
                                           {"temperature", 0},
                                           {"echo", true},
                                           {"logprobs", 1},
                                           {"stream", stream},
                                           {"max_tokens", 2}});
    Json logprobs{{"tokens", Json::array()},
                  {"token_logprobs", Json::array()},
                  {"top_logprobs", Json::array()},
                  {"text_offset", Json::array()}};
    std::string text;
    std::vector<Json> parts;
    if (stream)
      parts = sse_events(response.body);
    else
      parts = {response.json()};
    for (const Json& part : parts) {
      if (!part.is_object()) continue;
      const Json& choice = part["choices"][0];
      text += choice["text"].get<std::string>();
      for (auto& [key, all] : logprobs.items())
        if (choice["logprobs"].is_object())
          for (const Json& one : choice["logprobs"][key]) all.push_back(one);
    }
    EXPECT_EQ(text, "aüa\uFFFD");  // the second token is half a character
    EXPECT_EQ(logprobs["tokens"], (Json{"<s>", "a", "\\xc3", "\\xbc", "a", "\\xc3"}));
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    EXPECT_EQ(logprobs["token_logprobs"][1], -0.5);
    EXPECT_EQ(logprobs["text_offset"], (Json{0, 3, 4, 5, 5, 6}));
    EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
    EXPECT_EQ(logprobs["top_logprobs"][1], (Json{{"a", -0.5}}));
  }
}

TEST(OpenAiTest, EchoWithoutOutputScoresAPrompt) {
  Running server;
  const Json json =
      server.complete({{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 0}})
          .json();
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
}

TEST(OpenAiTest, PromptLogprobs) {
  Running server;
  const Json json = server.complete({{"prompt", "ab"}, {"prompt_logprobs", 2}}).json();
  const Json& positions = json["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(positions.size(), 3u);
  EXPECT_TRUE(positions[0].is_null());
  EXPECT_EQ(positions[1]["97"]["decoded_token"], "a");
  EXPECT_EQ(positions[1]["98"]["rank"], 2);
}

TEST(OpenAiTest, ParametersReachTheEngine) {
  Running server;
  const auto response = server.complete({{"prompt", "ab"},
                                         {"temperature", 0.5},
                                         {"top_p", 0.9},
                                         {"top_k", 7},
                                         {"min_p", 0.1},
                                         {"repetition_penalty", 1.2},
                                         {"presence_penalty", 0.3},
                                         {"frequency_penalty", -0.4},
                                         {"min_tokens", 2},
                                         {"seed", 42},
                                         {"max_tokens", 3},
                                         {"logit_bias", {{"97", -100}}},
                                         {"bad_words", {"xy"}},
                                         {"bad_words_token_ids", {5, {6, 7}}},
                                         {"priority", 3}});
  ASSERT_EQ(response.status, 200) << response.body;
  const NewSequence seen = server.echo.engine.seen().at(0);
  const SamplingParams& p = seen.params;
  EXPECT_FLOAT_EQ(p.temperature, 0.5f);
  EXPECT_FLOAT_EQ(p.top_p, 0.9f);
  EXPECT_EQ(p.top_k, 7);
  EXPECT_FLOAT_EQ(p.min_p, 0.1f);
  EXPECT_FLOAT_EQ(p.repetition, 1.2f);
  EXPECT_FLOAT_EQ(p.presence, 0.3f);
  EXPECT_FLOAT_EQ(p.frequency, -0.4f);
  EXPECT_EQ(p.min_tokens, 2);
  EXPECT_EQ(p.seed, 42u);
  EXPECT_EQ(seen.priority, 3);
  EXPECT_EQ(seen.stop.max_tokens, 3);
  EXPECT_EQ(seen.stop.tokens, std::vector<Token>{257});
  EXPECT_EQ(p.logit_bias, (std::vector<std::pair<Token, float>>{{97, -100.f}}));
  EXPECT_THAT(p.bad_words, testing::UnorderedElementsAre(
                               std::vector<Token>{5}, std::vector<Token>{6, 7},
                               std::vector<Token>{'x', 'y'}, std::vector<Token>{' ', 'x', 'y'}));
}

TEST(OpenAiTest, DefaultsFillInAndMaxTokensIsClipped) {
  ServerConfig config = local_config();
  config.defaults = {
      .temperature = 0.25f, .top_p = 0.5f, .repetition = 1.5f, .min_p = 0.f, .top_k = 9};
  Running server(config);
  ASSERT_EQ(server.complete({{"prompt", "ab"}}).status, 200);
  ASSERT_EQ(server.complete({{"prompt", "ab"}, {"max_tokens", 100000}, {"temperature", 1}}).status,
            200);
  const auto seen = server.echo.engine.seen();
  EXPECT_FLOAT_EQ(seen[0].params.temperature, 0.25f);
  EXPECT_FLOAT_EQ(seen[0].params.top_p, 0.5f);
  EXPECT_FLOAT_EQ(seen[0].params.repetition, 1.5f);
  EXPECT_EQ(seen[0].params.top_k, 9);
  EXPECT_EQ(seen[0].stop.max_tokens, 512 - 3);
  EXPECT_FLOAT_EQ(seen[1].params.temperature, 1.f);
  EXPECT_EQ(seen[1].stop.max_tokens, 512 - 3);
}

TEST(OpenAiTest, ToolsAndPartsReachTheTemplate) {
  Running server;
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const Json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  const Json json =
      server.chat({{"tools", tools}, {"messages", {{{"role", "user"}, {"content", parts}}}}})
          .json();
  const std::string text = json["choices"][0]["message"]["content"];
  EXPECT_EQ(text, "user:a\nb;tools:" + tools.dump());
}

struct BadRequest {
  const char* path;
  const char* body;
  int status;
  const char* param;  // "" for null
};

TEST(OpenAiTest, BadRequestsAreRefusedByName) {
  Running server;
  const char* chat = "/v1/chat/completions";
  const char* text = "/v1/completions";
#define M "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define P "\"prompt\":\"x\""
  const BadRequest table[] = {
      {chat, "", 400, ""},
      {chat, "{", 400, ""},
      {chat, "[]", 400, ""},
      {chat, "null", 400, ""},
      {chat, "{\"a\":\"\xff\"}", 400, ""},
      {chat, "{" M ",\"n\":1,\"n\":2}", 400, ""},
      {chat, "{" M ",\"temperature\":1e999}", 400, ""},
      {chat, "{" M ",\"temperature\":NaN}", 400, ""},
      {chat, "{}", 400, "messages"},
      {chat, "{\"messages\":[]}", 400, "messages"},
      {chat, "{\"messages\":\"hi\"}", 400, "messages"},
      {chat, "{\"messages\":[3.5]}", 400, "messages"},
      {chat, "{\"messages\":[{\"content\":\"x\"}]}", 400, "messages"},
      {chat, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages"},
      {chat, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", 400, "messages"},
      {chat, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
       "messages"},
      {chat, "{\"messages\":[{\"role\":\"bad\",\"content\":\"x\"}]}", 400, "messages"},
      {chat, "{" M ",\"model\":\"nope\"}", 404, "model"},
      {chat, "{" M ",\"model\":5}", 400, "model"},
      {chat, "{" M ",\"temperature\":-0.1}", 400, "temperature"},
      {chat, "{" M ",\"temperature\":\"1\"}", 400, "temperature"},
      {chat, "{" M ",\"temperature\":true}", 400, "temperature"},
      {chat, "{" M ",\"top_p\":1.5}", 400, "top_p"},
      {chat, "{" M ",\"top_p\":-1}", 400, "top_p"},
      {chat, "{" M ",\"top_k\":-2}", 400, "top_k"},
      {chat, "{" M ",\"top_k\":1.5}", 400, "top_k"},
      {chat, "{" M ",\"top_k\":99999999999}", 400, "top_k"},
      {chat, "{" M ",\"min_p\":2}", 400, "min_p"},
      {chat, "{" M ",\"repetition_penalty\":0}", 400, "repetition_penalty"},
      {chat, "{" M ",\"presence_penalty\":2.1}", 400, "presence_penalty"},
      {chat, "{" M ",\"frequency_penalty\":-2.1}", 400, "frequency_penalty"},
      {chat, "{" M ",\"n\":0}", 400, "n"},
      {chat, "{" M ",\"n\":129}", 400, "n"},
      {chat, "{" M ",\"n\":9223372036854775808}", 400, "n"},
      {chat, "{" M ",\"n\":2,\"best_of\":3}", 400, "best_of"},
      {chat, "{" M ",\"max_tokens\":0}", 400, "max_tokens"},
      {chat, "{" M ",\"max_tokens\":-1}", 400, "max_tokens"},
      {chat, "{" M ",\"max_completion_tokens\":2147483648}", 400, "max_completion_tokens"},
      {chat, "{" M ",\"min_tokens\":5,\"max_tokens\":4}", 400, "min_tokens"},
      {chat, "{" M ",\"seed\":18446744073709551615}", 400, "seed"},
      {chat, "{" M ",\"stop\":5}", 400, "stop"},
      {chat, "{" M ",\"stop\":[\"a\",5]}", 400, "stop"},
      {chat, "{" M ",\"stop_token_ids\":[-1]}", 400, "stop_token_ids"},
      {chat, "{" M ",\"stop_token_ids\":[258]}", 400, "stop_token_ids"},
      {chat, "{" M ",\"stream\":1}", 400, "stream"},
      {chat, "{" M ",\"stream_options\":{}}", 400, "stream_options"},
      {chat, "{" M ",\"stream\":true,\"stream_options\":{\"include_usage\":3}}", 400,
       "stream_options"},
      {chat, "{" M ",\"logprobs\":5}", 400, "logprobs"},
      {chat, "{" M ",\"top_logprobs\":2}", 400, "top_logprobs"},
      {chat, "{" M ",\"logprobs\":true,\"top_logprobs\":21}", 400, "top_logprobs"},
      {chat, "{" M ",\"prompt_logprobs\":-2}", 400, "prompt_logprobs"},
      {chat, "{" M ",\"logit_bias\":[1]}", 400, "logit_bias"},
      {chat, "{" M ",\"logit_bias\":{\"a\":1}}", 400, "logit_bias"},
      {chat, "{" M ",\"logit_bias\":{\"5\":101}}", 400, "logit_bias"},
      {chat, "{" M ",\"logit_bias\":{\"999\":1}}", 400, "logit_bias"},
      {chat, "{" M ",\"bad_words\":[\"\"]}", 400, "bad_words"},
      {chat, "{" M ",\"bad_words_token_ids\":[[]]}", 400, "bad_words_token_ids"},
      {chat, "{" M ",\"bad_words_token_ids\":[\"a\"]}", 400, "bad_words_token_ids"},
      {chat, "{" M ",\"response_format\":{\"type\":\"json_object\"}}", 400, "response_format"},
      {chat, "{" M ",\"guided_json\":{}}", 400, "guided_json"},
      {chat, "{" M ",\"tools\":{}}", 400, "tools"},
      {chat, "{" M ",\"tools\":[{}]}", 400, "tools"},
      {chat, "{" M ",\"tool_choice\":\"required\"}", 400, "tool_choice"},
      {chat, "{" M ",\"chat_template_kwargs\":{\"tokenize\":true}}", 400, "chat_template_kwargs"},
      {chat, "{" M ",\"metadata\":5}", 400, "metadata"},
      {text, "{}", 400, "prompt"},
      {text, "{\"prompt\":[]}", 400, "prompt"},
      {text, "{\"prompt\":[[]]}", 400, "prompt"},
      {text, "{\"prompt\":[1,\"a\"]}", 400, "prompt"},
      {text, "{\"prompt\":[-1]}", 400, "prompt"},
      {text, "{\"prompt\":[258]}", 400, "prompt"},
      {text, "{\"prompt\":{}}", 400, "prompt"},
      {text, "{\"prompt\":\"\",\"add_special_tokens\":false}", 400, "prompt"},
      {text, "{" P ",\"suffix\":\"y\"}", 400, "suffix"},
      {text, "{" P ",\"max_tokens\":0}", 400, "max_tokens"},
      {text, "{" P ",\"logprobs\":true}", 400, "logprobs"},
      {text, "{" P ",\"logprobs\":21}", 400, "logprobs"},
      {text, "{" P ",\"echo\":\"yes\"}", 400, "echo"},
  };
#undef M
#undef P
  TestClient client(server.port());
  for (const BadRequest& bad : table) {
    SCOPED_TRACE(bad.body);
    client.send("POST", bad.path, bad.body,
                std::string(bad.body).empty() ? "Content-Length: 0\r\n" : "");
    const auto response = client.response();
    EXPECT_EQ(response.status, bad.status) << response.body;
    const Json error = response.json()["error"];
    ASSERT_EQ(error.size(), 4u);
    EXPECT_TRUE(error["message"].is_string());
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"], *bad.param ? Json(bad.param) : Json());
  }
  EXPECT_TRUE(server.echo.engine.seen().empty());
}

TEST(OpenAiTest, NullIsAbsentAndUnknownFieldsAreIgnored) {
  Running server;
  EXPECT_EQ(server
                .chat({{"temperature", nullptr},
                       {"stop", nullptr},
                       {"tools", nullptr},
                       {"frobnicate", 1},
                       {"response_format", {{"type", "text"}}},
                       {"user", "u"},
                       {"model", "default"}})
                .status,
            200);
}

TEST(OpenAiTest, TooLongPromptsNameTheContext) {
  Running server;
  for (size_t size : {511u, 600u, 1000000u}) {
    const auto response = server.complete({{"prompt", std::string(size, 'x')}});
    ASSERT_EQ(response.status, 400);
    const Json error = response.json()["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], "prompt");
    EXPECT_THAT(error["message"].get<std::string>(),
                testing::HasSubstr("maximum context length is 512 tokens"));
  }
  const auto fits = server.complete({{"prompt", std::string(510, 'x')}, {"temperature", 0}});
  EXPECT_EQ(fits.status, 200);
  EXPECT_EQ(fits.json()["choices"][0]["text"], "x");
}

TEST(OpenAiTest, DeepAndLargeBodiesAreRefused) {
  ServerConfig config = local_config();
  config.http.max_body = 1 << 20;
  Running server(config);
  const std::string deep =
      "{\"messages\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(TestClient(server.port()).call("POST", "/v1/chat/completions", deep).status, 400);
  EXPECT_EQ(TestClient(server.port())
                .call("POST", "/v1/chat/completions", std::string(2 << 20, ' '))
                .status,
            413);
  EXPECT_EQ(server.chat(Json::object()).status, 200);
}

TEST(OpenAiTest, HangingUpCancels) {
  for (bool stream : {false, true}) {
    Running server;
    TestClient client(server.port());
    client.send("POST", "/v1/completions",
                Json{{"prompt", "abc"}, {"n", 3}, {"ignore_eos", true}, {"stream", stream}}.dump());
    server.echo.engine.turn_microseconds = 20000;
    ASSERT_TRUE(eventually([&] { return server.echo.engine.running() == 3; }));
    if (stream) {
      EXPECT_EQ(client.head().status, 200);
      client.chunk();
    }
    client.hang_up();
    EXPECT_TRUE(eventually([&] { return server.echo.engine.running() == 0; }));
    EXPECT_THAT(server.echo.service.metrics(), testing::HasSubstr("finished_reason=\"abort\""));
  }
}

TEST(OpenAiTest, SlowReadersAreDropped) {
  ServerConfig config = local_config();
  config.http.max_unsent = 64 << 10;
  Running server(config);
  server.echo.engine.turn_microseconds = 1;
  server.echo.engine.hold = true;
  TestClient client(server.port());
  // Each token carries every log-probability that is allowed, so that socket buffers fill.
  Json body{{"prompt", {"abc", "def"}},
            {"n", 64},
            {"ignore_eos", true},
            {"stream", true},
            {"logprobs", 20}};
  client.send("POST", "/v1/completions", body.dump());
  ASSERT_TRUE(eventually([&] { return server.echo.engine.running() == 128; }));
  server.echo.engine.hold = false;
  // 128 sequences of 500 tokens at about 1 kB would be 64 MB: far beyond what sockets buffer.
  EXPECT_TRUE(eventually([&] { return server.echo.engine.running() == 0; }));
  EXPECT_THAT(server.echo.service.metrics(), testing::HasSubstr("finished_reason=\"abort\""));
}

TEST(OpenAiTest, TooManyAtATimeAreToldSo) {
  ServerConfig config = local_config();
  config.max_concurrency = 2;
  Running server(config);
  server.echo.engine.hold = true;
  TestClient a(server.port()), b(server.port());
  for (TestClient* client : {&a, &b}) client->send("POST", "/v1/completions", R"({"prompt":"ab"})");
  ASSERT_TRUE(eventually([&] { return server.echo.engine.running() == 2; }));
  const auto busy = server.complete({{"prompt", "ab"}});
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.headers.at("retry-after"), "1");
  server.echo.engine.hold = false;
  EXPECT_EQ(a.response().status, 200);
  EXPECT_EQ(b.response().status, 200);
  EXPECT_EQ(server.complete({{"prompt", "ab"}}).status, 200);
}

TEST(OpenAiTest, ARefusalOfTheEngineIsAStatusEvenWhenStreaming) {
  Running server;
  server.echo.engine.refuse_ = true;
  for (bool stream : {false, true}) {
    const auto response = server.complete({{"prompt", {"ab", "cd"}}, {"n", 2}, {"stream", stream}});
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.json()["error"]["message"], "no room");
  }
}

TEST(OpenAiTest, SilentStreamsAreKeptAlive) {
  ServerConfig config = local_config();
  config.stream_idle_seconds = 0.1;
  Running server(config);
  server.echo.engine.hold = true;
  TestClient client(server.port());
  client.send("POST", "/v1/completions", R"({"prompt":"ab","stream":true,"temperature":0})");
  EXPECT_EQ(client.head().status, 200);
  EXPECT_EQ(client.chunk(), ": keep-alive\n\n");
  server.echo.engine.hold = false;
  std::string body;
  for (std::string part; !(part = client.chunk()).empty();) body += part;
  EXPECT_EQ(sse_events(body).back(), "[DONE]");
}

TEST(OpenAiTest, ManyClientsEachGetTheirOwn) {
  Running server;
  std::vector<std::thread> clients;
  std::atomic<int> good{0};
  for (int i = 0; i < 16; ++i)
    clients.emplace_back([&, i] {
      TestClient client(server.port());
      for (int j = 0; j < 5; ++j) {
        const std::string prompt = fmt::format("client {} call {}", i, j);
        const bool stream = (i + j) % 2;
        const auto response = client.post(
            "/v1/completions", {{"prompt", prompt}, {"temperature", 0}, {"stream", stream}});
        std::string text;
        if (stream) {
          for (const Json& event : sse_events(response.body))
            if (event.is_object()) text += event["choices"][0]["text"].get<std::string>();
        } else {
          text = response.json()["choices"][0]["text"];
        }
        good += text == prompt;
      }
    });
  for (auto& client : clients) client.join();
  EXPECT_EQ(good, 80);
}

TEST(OpenAiTest, ModelsAreListed) {
  Running server;
  TestClient client(server.port());
  const Json list = client.call("GET", "/v1/models").json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "echo");
  EXPECT_EQ(list["data"][0]["max_model_len"], 512);
  EXPECT_EQ(client.call("GET", "/v1/models/echo-alias").json()["id"], "echo-alias");
  const auto missing = client.call("GET", "/v1/models/nope");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(client.call("GET", "/v1/models/%00").status, 400);
}

TEST(OpenAiTest, Probes) {
  Running server;
  TestClient client(server.port());
  EXPECT_EQ(client.call("GET", "/health").status, 200);
  EXPECT_EQ(client.call("HEAD", "/health").status, 200);
  EXPECT_EQ(client.call("POST", "/ping", "", "Content-Length: 0\r\n").status, 200);
  EXPECT_EQ(client.call("GET", "/version").json()["version"], "0.1.0");
  EXPECT_EQ(client.call("GET", "/load").json()["server_load"], 0);
  server.echo.engine.stuck_ = 31;
  EXPECT_EQ(client.call("GET", "/health").status, 503);
  const auto wrong = client.call("GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(wrong.json()["error"]["code"], "method_not_allowed");
  EXPECT_EQ(client.call("GET", "//v1/models").status, 404);
  EXPECT_EQ(client.call("GET", "/nope").json()["error"]["code"], "route_not_found");
}

TEST(OpenAiTest, MetricsCount) {
  Running server;
  ASSERT_EQ(server.complete({{"prompt", "abcd"}, {"n", 2}, {"temperature", 0}}).status, 200);
  const auto response = TestClient(server.port()).call("GET", "/metrics");
  EXPECT_THAT(response.headers.at("content-type"), testing::HasSubstr("version=0.0.4"));
  for (const char* line :
       {"fastdeploy:requests_number{model_name=\"echo\"} 1\n",
        "fastdeploy:request_success_total{finished_reason=\"stop\",model_name=\"echo\"} 2\n",
        "vllm:request_success_total{finished_reason=\"stop\",model_name=\"echo\"} 2\n",
        "fastdeploy:prompt_tokens_total{model_name=\"echo\"} 10\n",
        "fastdeploy:generation_tokens_total{model_name=\"echo\"} 10\n",
        "fastdeploy:time_to_first_token_seconds_count{model_name=\"echo\"} 2\n",
        "fastdeploy:time_per_output_token_seconds_count{model_name=\"echo\"} 8\n",
        "fastdeploy:e2e_request_latency_seconds_count{model_name=\"echo\"} 1\n",
        "fastdeploy:num_requests_running{model_name=\"echo\"} 0\n",
        "fastdeploy:available_gpu_block_num{model_name=\"echo\"} 100\n",
        "# TYPE fastdeploy:time_to_first_token_seconds histogram\n",
        "# TYPE fastdeploy:request_success_total counter\n"})
    EXPECT_THAT(response.body, testing::HasSubstr(line));
}

TEST(OpenAiTest, DrainFinishesStreamsAndRefusesNewWork) {
  Running server;
  server.echo.engine.hold = true;
  TestClient client(server.port()), probe(server.port());
  client.send("POST", "/v1/completions", R"({"prompt":"abcd","stream":true,"temperature":0})");
  ASSERT_TRUE(eventually([&] { return server.echo.engine.running() == 1; }));
  std::atomic<bool> clean{false};
  std::thread drain([&] { clean = server.server.drain(10); });
  EXPECT_TRUE(
      eventually([&] { return TestClient(server.port()).call("GET", "/health").status == 503; }));
  EXPECT_EQ(TestClient(server.port()).call("GET", "/live").status, 200);
  const auto late = probe.call("POST", "/v1/completions", R"({"prompt":"late"})");
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(late.headers.at("connection"), "close");
  EXPECT_TRUE(late.headers.contains("retry-after"));
  server.echo.engine.hold = false;
  EXPECT_EQ(sse_events(client.response().body).back(), "[DONE]");
  drain.join();
  EXPECT_TRUE(clean);
}

TEST(OpenAiTest, ForceEndsADrainAndTellsTheClient) {
  Running server;
  server.echo.engine.turn_microseconds = 20000;
  TestClient client(server.port());
  client.send("POST", "/v1/completions", R"({"prompt":"abcd","stream":true,"ignore_eos":true})");
  EXPECT_EQ(client.head().status, 200);
  client.chunk();
  bool clean = true;
  std::thread drain([&] { clean = server.server.drain(60); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.server.force();
  drain.join();
  EXPECT_FALSE(clean);
  std::string body;
  for (std::string part; !(part = client.chunk()).empty();) body += part;
  EXPECT_EQ(sse_events(body).back()["error"]["code"], "unavailable");
  EXPECT_TRUE(eventually([&] { return server.echo.engine.running() == 0; }));
}

}  // namespace
}  // namespace skiff
