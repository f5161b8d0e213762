// Bad requests get a status and an error that names the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

struct BadRequest {
  const char* path;
  const char* body;
  int status;
  const char* param;  // "" for null
};

TEST(OpenAiRefusals, TheInputOfResponsesHasItsOwnName) {
  TestServer server;
  for (const Json& body : {Json{{"max_output_tokens", 3}}, Json{{"input", 3}},
                           Json{{"input", std::string(2000, 'x')}}}) {
    const auto refused = http::post_once(server.port(), "/v1/responses", body);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "input") << body;
  }
}

// What a protocol of turns renames on its way to a chat is called by the name that was sent.
TEST(OpenAiRefusals, FieldsAreCalledAsTheClientCallsThem) {
  TestServer server;
  struct Case {
    const char *path, *fields, *name;
  };
  const Case cases[] = {
      {"/v1/responses", R"("max_output_tokens":0)", "max_output_tokens"},
      {"/v1/responses", R"("reasoning":{"effort":"vast"})", "reasoning.effort"},
      {"/v1/responses", R"("text":{"format":{"type":"json_schema","name":"n"}})", "text.format"},
      {"/v1/responses",
       R"("text":{"format":{"type":"json_schema","schema":{"not":{"type":"null"}}}})",
       "text.format"},
      {"/v1/messages", R"("stop_sequences":3)", "stop_sequences"},
      {"/v1/messages", R"("stop":3)", "stop"},
      {"/v1/messages", R"("output_config":{"effort":"vast"})", "output_config.effort"},
      {"/v1/messages", R"("output_format":{"type":"json_schema","schema":{"not":{"type":"null"}}})",
       "output_format"},
      {"/v1/messages/count_tokens", R"("stop_sequences":3)", "stop_sequences"},
      {"/api/chat", R"("options":{"num_predict":2147483648})", "options.num_predict"},
      {"/api/chat", R"("options":{"repeat_penalty":-1})", "options.repeat_penalty"},
      {"/api/chat", R"("options":{"temperature":-1})", "options.temperature"},
      {"/api/chat", R"("format":{"not":{"type":"null"}})", "format"},
      {"/api/generate", R"("options":{"num_predict":"x"})", "options.num_predict"},
  };
  for (const Case& one : cases) {
    Json body = Json::parse(std::string("{") + one.fields + "}");
    const bool responses = std::string_view(one.path) == "/v1/responses";
    body[responses ? "input" : "prompt"] = "x";
    body["messages"] = {{{"role", "user"}, {"content", "x"}}};
    body["max_tokens"] = 5;
    const auto refused = http::post_once(server.port(), one.path, body);
    EXPECT_EQ(refused.status, 400) << one.fields;
    const Json error = refused.json()["error"];
    const std::string what = error.is_string() ? error : error["message"];
    EXPECT_TRUE(what.starts_with(std::string(one.name) + " ") ||
                what.starts_with(std::string(one.name) + ":"))
        << one.name << ": " << what;
    const bool has_param = error.is_object() && error.contains("param");
    EXPECT_TRUE(!has_param || error["param"] == one.name) << error;
  }
}

TEST(OpenAiRefusals, BadRequestsAreRefusedByName) {
  TestServer server;
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
      {chat, "{" M ",\"n\":3,\"best_of\":2}", 400, "best_of"},
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
      {chat, "{" M ",\"include_draft_logprobs\":true}", 400, "include_draft_logprobs"},
      {chat, "{" M ",\"logit_bias\":[1]}", 400, "logit_bias"},
      {chat, "{" M ",\"logit_bias\":{\"a\":1}}", 400, "logit_bias"},
      {chat, "{" M ",\"logit_bias\":{\"5\":101}}", 400, "logit_bias"},
      {chat, "{" M ",\"logit_bias\":{\"999\":1}}", 400, "logit_bias"},
      {chat, "{" M ",\"bad_words\":[\"\"]}", 400, "bad_words"},
      {chat, "{" M ",\"bad_words_token_ids\":[[]]}", 400, "bad_words_token_ids"},
      {chat, "{" M ",\"bad_words_token_ids\":[\"a\"]}", 400, "bad_words_token_ids"},
      {chat, "{" M ",\"response_format\":{\"type\":\"yaml\"}}", 400, "response_format"},
      {chat, "{" M ",\"guided_json\":{\"not\":{\"type\":\"null\"}}}", 400, "guided_json"},
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
  http::TestClient client(server.port());
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

TEST(OpenAiRefusals, TooLongPromptsNameTheContext) {
  TestServer server;
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

TEST(OpenAiRefusals, DeepAndLargeBodiesAreRefused) {
  serve::ServerConfig config = local_config();
  config.http.max_body = 1 << 20;
  TestServer server(config);
  const std::string deep =
      "{\"messages\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(http::TestClient(server.port()).call("POST", "/v1/chat/completions", deep).status, 400);
  EXPECT_EQ(http::TestClient(server.port())
                .call("POST", "/v1/chat/completions", std::string(2 << 20, ' '))
                .status,
            413);
  EXPECT_EQ(server.chat(Json::object()).status, 200);
}

TEST(OpenAiRefusals, ARefusalOfTheEngineIsAStatusEvenWhenStreaming) {
  TestServer server;
  server.echo.engine.refuse_ = true;
  for (bool stream : {false, true}) {
    const auto response = server.complete({{"prompt", {"ab", "cd"}}, {"n", 2}, {"stream", stream}});
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.json()["error"]["message"], "no room");
  }
}

// Depth is refused while it is parsed, in one pass and without recursion.
TEST(OpenAiRefusals, Item40DepthIsRefused) {
  TestServer server;
  http::TestClient client(server.port());
  for (size_t depth : {size_t{65}, size_t{100000}, size_t{1000000}})
    for (const char* open : {"[", "{\"a\":"}) {
      std::string body = "{\"messages\":";
      for (size_t i = 0; i < depth; ++i) body += open;
      const auto response = client.call("POST", "/v1/chat/completions", body);
      EXPECT_EQ(response.status, 400);
      EXPECT_EQ(response.json()["error"]["code"], "invalid_json");
    }
  EXPECT_EQ(server.chat(Json::object()).status, 200);
}

TEST(OpenAiRefusals, BadJsonSaysWhere) {
  TestServer server;
  http::TestClient client(server.port());
  struct Case {
    std::string body;
    const char* said;
  };
  const Case cases[] = {
      {"{\"prompt\": \"x\"\n,}", "line 2, column 2"},
      {"{\"prompt\": \"x\"} x", "column 17"},
      {"{\"prompt\": \"\xc3(\"}", "UTF-8"},
      {"{\"prompt\": 1e309}", "1e309"},
      {"{\"prompt\": \"x\", \"prompt\": \"y\"}", "duplicate key \"prompt\""},
      {"{\"prompt\": \"" + std::string(100000, 'x') + "\xff\"}", "UTF-8"},
  };
  for (const Case& c : cases) {
    const auto response = client.call("POST", "/v1/completions", c.body);
    EXPECT_EQ(response.status, 400);
    const std::string message = response.json()["error"]["message"];
    EXPECT_THAT(message, testing::HasSubstr(c.said));
    EXPECT_THAT(message, testing::Not(testing::HasSubstr("exception")));
    EXPECT_LT(message.size(), 400u);
  }
}

TEST(OpenAiRefusals, OddButValidJsonIsRead) {
  TestServer server;
  http::TestClient client(server.port());
  const auto text = [&](const std::string& body) {
    return client.call("POST", "/v1/completions", body).json()["choices"][0]["text"];
  };
  EXPECT_EQ(text("\xEF\xBB\xBF{\"prompt\":\"ab\",\"temperature\":0}"), "ab");
  EXPECT_EQ(text(" \t\r\n{\"prompt\":\"ab\",\"temperature\":0}\n "), "ab");
  EXPECT_EQ(text("{\"prompt\":\"a\\u0000b\",\"temperature\":0}"), (std::string("a\0b", 3)));
  EXPECT_EQ(text("{\"prompt\":\"\\ud83d\\udea2\",\"temperature\":0}"), "🚢");
}

TEST(OpenAiRefusals, Item18AStrictServerRefusesUnknownFields) {
  serve::ServerConfig config = local_config();
  config.refuse_unknown_fields = true;
  TestServer server(config);
  const auto response = server.complete({{"prompt", "ab"}, {"frobnicate", 1}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["param"], "frobnicate");
  EXPECT_EQ(response.json()["error"]["code"], "unknown_parameter");
  EXPECT_EQ(server.complete({{"prompt", "ab"}, {"user", "u"}}).status, 200);
}

// No field of a client selects a backend or becomes a tensor.
TEST(OpenAiRefusals, Item32And44NoTensorsAndNoBackEnds) {
  TestServer server;
  for (const char* field : {"prompt_embeds", "guided_decoding_backend", "logits_processors"}) {
    const auto response = server.complete({{"prompt", "ab"}, {field, "AAAA"}});
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.json()["error"]["param"], field);
  }
}

}  // namespace
}  // namespace skiff::openai
