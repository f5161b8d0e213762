// PaddleNLP's requests over HTTP, against a server whose engine repeats its prompt.
#include "serve/paddle/legacy_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "serve/http/client_testing.h"
#include "serve/server.h"
#include "serve/service/engine_testing.h"

namespace skiff::paddle {
namespace {

using testing::HasSubstr;

constexpr const char* kPath = "/v1/chat/completions";

struct Running {
  explicit Running(PaddleConfig paddle = {}) : server(config(paddle), echo.service) {
    server.start();
  }
  static serve::ServerConfig config(PaddleConfig paddle) {
    serve::ServerConfig config;
    config.http.host = "127.0.0.1";
    config.http.port = 0;
    config.model_names = {"echo"};
    config.paddle = paddle;
    config.access_log = false;
    config.stream_idle_seconds = 0.04;
    return config;
  }
  http::ClientResponse post(const Json& body, const char* path = kPath) const {
    return http::post_once(server.port(), path, body);
  }
  // Each line of a stream as JSON, without anything around it.
  std::vector<Json> lines(const Json& body, const char* path = kPath) const {
    const http::ClientResponse response = post(body, path);
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(response.headers.at("content-type"), HasSubstr("text/event-stream"));
    std::vector<Json> objects;
    std::istringstream text(response.body);
    for (std::string line; std::getline(text, line);) objects.push_back(Json::parse(line));
    return objects;
  }
  // Whether so many sequences run, soon.
  bool comes_to(int sequences) const {
    for (int i = 0; i < 15000 && echo.engine.running() != sequences; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return echo.engine.running() == sequences;
  }
  service::EchoService echo;
  serve::Server server;
};

Json request(const Json& more = Json::object()) {
  Json body{{"req_id", "r1"}, {"text", "hi"}, {"temperature", 0}};
  body.update(more);
  return body;
}

// The prompt is "user:hi;", which the engine says, and then </s>.
TEST(LegacyForm, StreamIsOneLineForEachToken) {
  Running running;
  const auto lines = running.lines(request({{"stream", true}}));
  ASSERT_EQ(lines.size(), 9U);
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    EXPECT_EQ(line["req_id"], "r1");
    EXPECT_EQ(line["send_idx"], i);
    EXPECT_EQ(line["is_end"], i + 1 == lines.size() ? 1 : 0);
    EXPECT_EQ(line["usage"]["completion_tokens"], i + 1);
    EXPECT_EQ(line["token_ids"].size(), i < 8 ? 1U : 0U);
    EXPECT_EQ(line["error_msg"], "");
    EXPECT_EQ(line["error_code"], 0);
    EXPECT_EQ(line.contains("tokens_all"), i + 1 == lines.size());
    EXPECT_FALSE(line.contains("result"));
    text += line["token"].get<std::string>();
  }
  EXPECT_EQ(text, "user:hi;");
  EXPECT_EQ(lines.back()["tokens_all"], "user:hi;");
  EXPECT_EQ(lines.back()["tokens_all_num"], 9);
  EXPECT_EQ(lines.back()["tokens_all_ids"].size(), 8U);
}

TEST(LegacyForm, WholeAnswerHasBothNames) {
  Running running;
  const http::ClientResponse response = running.post(request({{"return_usage", true}}));
  EXPECT_EQ(response.status, 200);
  const Json answer = response.json();
  EXPECT_EQ(answer["result"], "user:hi;");
  EXPECT_EQ(answer["tokens_all"], "user:hi;");
  EXPECT_EQ(answer["error_msg"], "");
  EXPECT_EQ(answer["error_code"], 0);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 9);
  EXPECT_FALSE(running.post(request()).json().contains("usage"));
}

TEST(LegacyForm, EveryPathAndTheDoubledSuffix) {
  Running running;
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/v1/chat/completions/completions",
        "/v1/chat/completions/chat/completions", "/v1/completions/completions"}) {
    SCOPED_TRACE(path);
    EXPECT_EQ(running.post(request(), path).json()["result"], "user:hi;");
  }
  const Json chat{{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"temperature", 0}};
  const auto answer = running.post(chat, "/v1/chat/completions/chat/completions").json();
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "user:hi;");
  const auto completion =
      running.post({{"prompt", "abc"}, {"temperature", 0}}, "/v1/chat/completions/completions");
  EXPECT_EQ(completion.json()["choices"][0]["text"], "abc");
}

TEST(LegacyForm, ErrorsHaveStatus200) {
  Running running;
  const http::ClientResponse whole = running.post(request({{"topp", 3}}));
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.json()["error_msg"], "The `topp` must be in [0, 1]");
  EXPECT_EQ(whole.json()["error_code"], 200);
  EXPECT_EQ(whole.json()["req_id"], "r1");
  EXPECT_EQ(whole.json()["result"], "");
  const auto lines = running.lines(request({{"stream", true}, {"min_dec_len", 600}}));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0]["error_msg"].get<std::string>(), HasSubstr("too long"));
  running.echo.engine.refuse_ = true;
  EXPECT_EQ(running.post(request()).json()["error_msg"], "no room");
  EXPECT_EQ(running.lines(request({{"stream", true}})).at(0)["error_code"], 200);
}

TEST(LegacyForm, OnlyTheLastObjectWhereStreamingIsOff) {
  for (const bool by_server : {true, false}) {
    Running running({.disable_streaming = by_server});
    Json body = request({{"stream", true}});
    if (!by_server) body["return_all_tokens"] = true;
    const auto lines = running.lines(body);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0]["token"], "user:hi;");
    EXPECT_EQ(lines[0]["token_ids"].size(), 8U);
    EXPECT_EQ(lines[0]["is_end"], 1);
    EXPECT_EQ(lines[0]["send_idx"], 8);
  }
}

TEST(LegacyForm, TimeoutIsTheWaitForAToken) {
  Running running;
  running.echo.engine.hold = true;
  const Json answer = running.post(request({{"timeout", 0.05}})).json();
  EXPECT_THAT(answer["error_msg"].get<std::string>(), HasSubstr("no token came for 0.05 s"));
  EXPECT_EQ(answer["error_code"], 500);
  EXPECT_TRUE(running.comes_to(0));
}

TEST(LegacyForm, ClientThatLeavesFreesItsPlace) {
  Running running;
  running.echo.engine.hold = true;
  {
    http::TestClient client(running.server.port());
    client.send("POST", kPath, request({{"stream", true}}).dump());
    ASSERT_TRUE(running.comes_to(1));
  }
  EXPECT_TRUE(running.comes_to(0));
}

TEST(LegacyForm, BenchmarkAddsTimes) {
  Running running;
  const auto lines = running.lines(request({{"stream", true}, {"benchmark", true}}));
  for (const char* key : {"preprocess_start_time", "preprocess_end_time",
                          "inference_current_step_time", "http_received_time"})
    EXPECT_THAT(lines.at(0)[key].get<std::string>(), testing::ContainsRegex("^20.*:.*\\."));
}

}  // namespace
}  // namespace skiff::paddle
