// POST /v1/completions over real sockets, on an engine that repeats its prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

TEST(OpenAiCompletions, StreamsNeverCutACharacter) {
  TestServer server;
  const std::string text = "grüße 日本 🚢";
  const auto response = server.complete({{"prompt", text}, {"temperature", 0}, {"stream", true}});
  std::string joined;
  for (const Json& event : http::sse_events(response.body))
    if (event.is_object()) joined += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(joined, text);
}

TEST(OpenAiCompletions, StopStringEndsTheReplyAndFreesTheEngine) {
  TestServer server;
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
    EXPECT_TRUE(http::eventually([&] { return server.echo.engine.running() == 0; }));
  }
}

TEST(OpenAiCompletions, StopTokenIsToldAndLeavesNoText) {
  TestServer server;
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

TEST(OpenAiCompletions, SeedsOfTheChoicesFollowEachOther) {
  TestServer server;
  const Json body{{"prompt", "abcd"}, {"seed", 1}, {"n", 3}};
  const Json json = server.complete(body).json();
  ASSERT_EQ(json["choices"].size(), 3u);
  EXPECT_EQ(json["choices"][0]["text"], "bcda");
  EXPECT_EQ(json["choices"][1]["text"], "cdab");
  EXPECT_EQ(json["choices"][2]["text"], "dabc");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json["usage"]["completion_tokens"], 15);
}

// With max_tokens 0 nothing is generated, and no chunk says otherwise.
TEST(OpenAiCompletions, AnEchoAloneHasNoTokens) {
  TestServer server;
  const auto response = server.complete(
      {{"prompt", "abc"},
       {"echo", true},
       {"max_tokens", 0},
       {"stream", true},
       {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  int events = 0;
  for (const Json& event : http::sse_events(response.body)) {
    if (!event.is_object()) continue;
    EXPECT_EQ(event["usage"]["completion_tokens"], 0);
    EXPECT_EQ(event["usage"]["prompt_tokens"], 4);
    ++events;
  }
  EXPECT_GE(events, 2);
}

TEST(OpenAiCompletions, ListsOfPromptsMakeChoicesInOrder) {
  TestServer server;
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

TEST(OpenAiCompletions, CompletionLogprobsWithEcho) {
  TestServer server;
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
      parts = http::sse_events(response.body);
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

TEST(OpenAiCompletions, LogprobsOfDraftsCountTheEchoedPrompt) {
  TestServer server;
  for (const bool stream : {false, true}) {
    for (const bool echo : {false, true}) {
      const auto response = server.complete({{"prompt", "ab"},
                                             {"temperature", 0},
                                             {"echo", echo},
                                             {"logprobs", 1},
                                             {"stream", stream},
                                             {"include_draft_logprobs", true},
                                             {"max_tokens", 3}});
      Json tokens = Json::array(), drafts = Json::array(), positions = Json::array();
      const auto parts = stream ? http::sse_events(response.body) : std::vector{response.json()};
      for (const Json& part : parts) {
        if (!part.is_object()) continue;
        const Json& choice = part["choices"][0];
        if (choice["logprobs"].is_object())
          for (const Json& one : choice["logprobs"]["tokens"]) tokens.push_back(one);
        const Json& here = choice["draft_logprobs"];
        if (!here.is_object()) continue;
        for (const Json& one : here["tokens"]) drafts.push_back(one);
        for (const Json& one : here["positions"]) positions.push_back(one);
        EXPECT_EQ(here["token_logprobs"].size(), here["tokens"].size());
        EXPECT_EQ(here["top_logprobs"].size(), here["tokens"].size());
      }
      const size_t prompt = tokens.size() - 3;
      EXPECT_EQ(prompt, echo ? 3u : 0u);
      EXPECT_EQ(positions, (Json{prompt + 1, prompt + 2}));
      EXPECT_EQ(drafts[0], tokens[prompt + 1]);
      EXPECT_NE(drafts[1], tokens[prompt + 2]);
    }
  }
}

TEST(OpenAiCompletions, EchoWithoutOutputScoresAPrompt) {
  TestServer server;
  const Json json =
      server.complete({{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 0}})
          .json();
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
}

TEST(OpenAiCompletions, PromptLogprobs) {
  TestServer server;
  const Json json = server.complete({{"prompt", "ab"}, {"prompt_logprobs", 2}}).json();
  const Json& positions = json["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(positions.size(), 3u);
  EXPECT_TRUE(positions[0].is_null());
  EXPECT_EQ(positions[1]["97"]["decoded_token"], "a");
  EXPECT_EQ(positions[1]["98"]["rank"], 2);
}

TEST(OpenAiCompletions, ParametersReachTheEngine) {
  serve::ServerConfig config = local_config();
  config.policy.priority = true;
  TestServer server(config);
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
                                         {"cache_salt", "mine"},
                                         {"cache_prompt", false},
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
  EXPECT_EQ(seen.cache.salt, "mine");
  EXPECT_FALSE(seen.cache.share);
  EXPECT_EQ(seen.stop.max_tokens, 3);
  EXPECT_EQ(seen.stop.tokens, std::vector<Token>{257});
  EXPECT_EQ(p.logit_bias, (std::vector<std::pair<Token, float>>{{97, -100.f}}));
  EXPECT_THAT(p.bad_words, testing::UnorderedElementsAre(
                               std::vector<Token>{5}, std::vector<Token>{6, 7},
                               std::vector<Token>{'x', 'y'}, std::vector<Token>{' ', 'x', 'y'}));
}

TEST(OpenAiCompletions, DefaultsFillInAndMaxTokensIsClipped) {
  serve::ServerConfig config = local_config();
  config.defaults = {.temperature = 0.25f,
                     .top_p = 0.5f,
                     .repetition = 1.5f,
                     .min_p = 0.125f,
                     .top_k = 9,
                     .max_tokens = 20};
  TestServer server(config);
  ASSERT_EQ(server.complete({{"prompt", "ab"}}).status, 200);
  ASSERT_EQ(server.complete({{"prompt", "ab"}, {"max_tokens", 100000}, {"temperature", 1}}).status,
            200);
  ASSERT_EQ(server.complete({{"prompt", "ab"}, {"min_tokens", 30}}).status, 200);
  const auto seen = server.echo.engine.seen();
  EXPECT_EQ(seen[2].stop.max_tokens, 30);
  EXPECT_FLOAT_EQ(seen[0].params.temperature, 0.25f);
  EXPECT_FLOAT_EQ(seen[0].params.top_p, 0.5f);
  EXPECT_FLOAT_EQ(seen[0].params.repetition, 1.5f);
  EXPECT_EQ(seen[0].params.top_k, 9);
  EXPECT_FLOAT_EQ(seen[0].params.min_p, 0.125f);
  EXPECT_EQ(seen[0].stop.max_tokens, 20);
  EXPECT_FLOAT_EQ(seen[1].params.temperature, 1.f);
  EXPECT_EQ(seen[1].stop.max_tokens, 512 - 3);
}

}  // namespace
}  // namespace skiff::openai
