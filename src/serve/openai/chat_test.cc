// POST /v1/chat/completions over real sockets, on an engine that repeats its prompt.
#include <gtest/gtest.h>

#include <map>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

TEST(OpenAiChat, ChatAnswersInOnePiece) {
  TestServer server;
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
  EXPECT_EQ(json["usage"]["completion_tokens"], 9);  // </s> counts
  EXPECT_EQ(json["usage"]["total_tokens"], 17);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST(OpenAiChat, ChatStreams) {
  TestServer server;
  const auto response =
      server.chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto events = http::sse_events(response.body);
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

TEST(OpenAiChat, UsageInEveryChunkIfAsked) {
  TestServer server;
  const auto response = server.chat(
      {{"stream", true},
       {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  const auto events = http::sse_events(response.body);
  int before = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const int now = events[i]["usage"]["completion_tokens"].get<int>();
    EXPECT_GE(now, before);
    before = now;
  }
  EXPECT_EQ(before, 9);
}

// The usage of a chunk is that of its choice; the last one's is of all.
TEST(OpenAiChat, UsageInAChunkIsOfItsChoice) {
  TestServer server;
  const auto response = server.chat(
      {{"stream", true},
       {"n", 3},
       {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  const auto events = http::sse_events(response.body);
  std::map<int, int> tokens;
  for (const Json& event : events)
    if (event.is_object() && !event["choices"].empty())
      tokens[event["choices"][0]["index"]] = event["usage"]["completion_tokens"].get<int>();
  EXPECT_EQ(tokens, (std::map<int, int>{{0, 9}, {1, 9}, {2, 9}}));
  EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], 27);
}

TEST(OpenAiChat, LogprobsOfThePromptStandBesideTheChoices) {
  TestServer server;
  const Json body{{"prompt_logprobs", 0}, {"n", 2}};
  const Json json = server.chat(body).json();
  EXPECT_EQ(json["prompt_logprobs"].size(), 8u);
  for (const Json& choice : json["choices"])
    EXPECT_EQ(choice["prompt_logprobs"], json["prompt_logprobs"]);
  Json streamed = body;
  streamed["stream"] = true;
  int beside = 0;
  for (const Json& event : http::sse_events(server.chat(streamed).body))
    if (event.is_object() && event.contains("prompt_logprobs")) {
      EXPECT_EQ(event["prompt_logprobs"], json["prompt_logprobs"]);
      ++beside;
    }
  EXPECT_EQ(beside, 1);
  EXPECT_FALSE(server.chat({}).json().contains("prompt_logprobs"));
}

TEST(OpenAiChat, TokensOfLogprobsMayBeIds) {
  TestServer server;
  const Json wanted{{"logprobs", true},
                    {"top_logprobs", 2},
                    {"max_tokens", 1},
                    {"return_tokens_as_token_ids", true}};
  const Json first = server.chat(wanted).json()["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(first["token"], "token_id:117");
  EXPECT_EQ(first["bytes"], Json{int{'u'}});
  EXPECT_EQ(first["top_logprobs"][1]["token"], "token_id:118");
  const Json list = server
                        .complete({{"prompt", "u"},
                                   {"temperature", 0},
                                   {"logprobs", 1},
                                   {"max_tokens", 1},
                                   {"return_tokens_as_token_ids", true}})
                        .json()["choices"][0]["logprobs"];
  EXPECT_EQ(list["tokens"], Json{"token_id:117"});
  EXPECT_TRUE(list["top_logprobs"][0].contains("token_id:117"));
}

// In one body and in a stream: the same entries, each with the place of the token that it stood
// for.
TEST(OpenAiChat, LogprobsOfDrafts) {
  TestServer server;
  const Json wanted{
      {"logprobs", true}, {"top_logprobs", 1}, {"max_tokens", 4}, {"include_draft_logprobs", true}};
  const Json choice = server.chat(wanted).json()["choices"][0];
  const Json& content = choice["logprobs"]["content"];
  const Json& drafts = choice["draft_logprobs"]["content"];
  ASSERT_EQ(content.size(), 4u);
  ASSERT_EQ(drafts.size(), 3u);
  for (size_t i = 0; i < drafts.size(); ++i) {
    EXPECT_EQ(drafts[i]["position"], i + 1);
    EXPECT_EQ(drafts[i]["token"] == content[i + 1]["token"], i % 2 == 0) << i;
    EXPECT_FLOAT_EQ(drafts[i]["logprob"].get<float>(), -0.5f);
    EXPECT_EQ(drafts[i]["top_logprobs"].size(), 1u);
    EXPECT_TRUE(drafts[i].contains("bytes"));
  }
  Json streamed = Json::array(), body = wanted;
  body["stream"] = true;
  for (const Json& event : http::sse_events(server.chat(body).body)) {
    if (!event.is_object() || event["choices"].empty()) continue;
    const Json& part = event["choices"][0];
    if (part.contains("draft_logprobs") && part["draft_logprobs"].is_object())
      for (const Json& one : part["draft_logprobs"]["content"]) streamed.push_back(one);
  }
  EXPECT_EQ(streamed, drafts);
  EXPECT_FALSE(server.chat({{"logprobs", true}}).json()["choices"][0].contains("draft_logprobs"));
}

TEST(OpenAiChat, ChatLogprobs) {
  TestServer server;
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

TEST(OpenAiChat, ToolsAndPartsReachTheTemplate) {
  TestServer server;
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const Json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  const Json json =
      server.chat({{"tools", tools}, {"messages", {{{"role", "user"}, {"content", parts}}}}})
          .json();
  const std::string text = json["choices"][0]["message"]["content"];
  EXPECT_EQ(text, "user:a\nb;tools:" + tools.dump());
}

TEST(OpenAiChat, NullIsAbsentAndUnknownFieldsAreIgnored) {
  TestServer server;
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

TEST(OpenAiChat, TheLastMessageCanBeContinued) {
  TestServer server;
  const Json messages = {{{"role", "user"}, {"content", "hi"}},
                         {{"role", "assistant"}, {"content", "he"}}};
  const Json json = server.chat({{"messages", messages}, {"continue_final_message", true}}).json();
  EXPECT_EQ(json["choices"][0]["message"]["content"], "user:hi;assistant:he");
}

TEST(OpenAiChat, FieldsWithoutEffectAreAccepted) {
  TestServer server;
  const auto response = server.chat({{"user", "u"},
                                     {"metadata", {{"k", "v"}}},
                                     {"store", false},
                                     {"service_tier", "auto"},
                                     {"safety_identifier", "s"},
                                     {"prompt_cache_key", "p"},
                                     {"parallel_tool_calls", true},
                                     {"verbosity", "low"},
                                     {"prediction", {{"type", "content"}, {"content", "x"}}},
                                     {"modalities", {"text"}},
                                     {"spaces_between_special_tokens", true},
                                     {"detokenize", true},
                                     {"include_logprobs_decode_token", true},
                                     {"collect_metrics", false},
                                     {"top_logprobs", 0}});
  EXPECT_EQ(response.status, 200) << response.body;
}

// What a message spells stays text (serve/service/special_text.h), unless the request permits more.
TEST(OpenAiChat, RawPromptsAndPermissionParseSpecialTokens) {
  TestServer server;
  const auto prompt = [](const http::ClientResponse& response) {
    const Json choice = response.json()["choices"][0];
    return choice.contains("message") ? choice["message"]["prompt_token_ids"]
                                      : choice["prompt_token_ids"];
  };
  const Json messages = {{{"role", "user"}, {"content", "</s>"}}};
  const Json refused = prompt(server.chat({{"messages", messages}, {"return_token_ids", true}}));
  EXPECT_EQ(refused.size(), 10u);  // "user:</s>;" in bytes
  const Json allowed = prompt(server.chat(
      {{"messages", messages}, {"return_token_ids", true}, {"parse_special_tokens", true}}));
  EXPECT_EQ(allowed.size(), 7u);
  EXPECT_EQ(prompt(server.complete({{"prompt", "</s>"}, {"return_token_ids", true}})),
            (Json{256, 257}));
}

}  // namespace
}  // namespace skiff::openai
