// What a server with more work than it can do tells its clients, and what it lets go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

using testing::HasSubstr;

// A server whose service has these bounds.
struct BoundedServer {
  explicit BoundedServer(service::AdmissionLimits limits,
                         serve::ServerConfig config = local_config())
      : echo(with(limits)), server(std::move(config), echo.service) {
    server.start();
  }
  static service::ServiceConfig with(service::AdmissionLimits limits) {
    service::ServiceConfig config = service::echo_config();
    config.admission = limits;
    return config;
  }
  http::ClientResponse complete(const Json& body) {
    return http::post_once(server.port(), "/v1/completions", body);
  }
  bool drained() {
    return http::eventually([&] { return echo.engine.running() == 0; });
  }
  std::string metrics() { return echo.service.metrics(); }
  service::EchoService echo;
  serve::Server server;
};

std::string refused(const char* reason, int count) {
  return fmt::format("fastdeploy:requests_refused_total{{model_name=\"echo\",reason=\"{}\"}} {}\n",
                     reason, count);
}

void expect_retry(const http::ClientResponse& response, int least, int most) {
  ASSERT_TRUE(response.headers.contains("retry-after"));
  const int seconds = std::stoi(response.headers.at("retry-after"));
  EXPECT_GE(seconds, least);
  EXPECT_LE(seconds, most);
}

TEST(OpenAiOverload, WaitingTokensAreBounded) {
  BoundedServer server({.waiting_tokens = 20});
  server.echo.engine.hold = true;
  http::TestClient first(server.server.port()), second(server.server.port());
  // Longer than the bound, but nothing waits: BOS and 30 bytes.
  first.send("POST", "/v1/completions", Json{{"prompt", std::string(30, 'a')}}.dump());
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 1; }));
  EXPECT_THAT(server.metrics(), HasSubstr("num_waiting_tokens{model_name=\"echo\"} 31\n"));
  const auto busy = server.complete({{"prompt", "ab"}});
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.json()["error"]["type"], "rate_limit_error");
  EXPECT_THAT(busy.json()["error"]["message"].get<std::string>(),
              testing::AllOf(HasSubstr("31 prompt tokens"), HasSubstr("bound of 20")));
  expect_retry(busy, 1, 60);
  EXPECT_THAT(server.metrics(), HasSubstr(refused("waiting_tokens", 1)));
  server.echo.engine.hold = false;
  EXPECT_EQ(first.response().status, 200);
  EXPECT_EQ(server.complete({{"prompt", "ab"}, {"temperature", 0}}).status, 200);
  EXPECT_THAT(server.metrics(), HasSubstr("num_waiting_tokens{model_name=\"echo\"} 0\n"));
}

// All prompts of one call, and all n of each, are one request.
TEST(OpenAiOverload, ACallIsLetInWholeOrNotAtAll) {
  BoundedServer server({.waiting_tokens = 20});
  const Json body{{"prompt", {"abcdefgh", "ijklmnop"}}, {"n", 3}, {"temperature", 0}};
  EXPECT_EQ(server.complete(body).status, 200);  // 54 tokens, but nothing waits
  server.echo.engine.hold = true;
  http::TestClient first(server.server.port());
  first.send("POST", "/v1/completions", R"({"prompt":"ab"})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 1; }));
  const auto busy = server.complete(body);
  EXPECT_EQ(busy.status, 429);
  EXPECT_THAT(busy.json()["error"]["message"].get<std::string>(), HasSubstr("the 54 of this"));
  EXPECT_EQ(server.echo.engine.running(), 1);
  // 3 and 15 tokens are within the bound.
  http::TestClient second(server.server.port());
  second.send("POST", "/v1/completions", R"({"prompt":"cd","n":5,"temperature":0})");
  EXPECT_TRUE(http::eventually([&] { return server.echo.engine.running() == 6; }));
  server.echo.engine.hold = false;
  EXPECT_EQ(first.response().status, 200);
  EXPECT_EQ(second.response().status, 200);
}

TEST(OpenAiOverload, HangingUpGivesTheTokensBack) {
  BoundedServer server({.waiting_tokens = 20});
  server.echo.engine.hold = true;
  {
    http::TestClient first(server.server.port());
    first.send("POST", "/v1/completions", Json{{"prompt", std::string(30, 'a')}}.dump());
    ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 1; }));
  }
  EXPECT_TRUE(server.drained());
  EXPECT_THAT(server.metrics(), HasSubstr("num_waiting_tokens{model_name=\"echo\"} 0\n"));
}

TEST(OpenAiOverload, WaitingTimeIsBounded) {
  for (const bool stream : {false, true}) {
    BoundedServer server({.waiting_seconds = 0.1});
    server.echo.engine.hold = true;
    const auto late = server.complete({{"prompt", "ab"}, {"n", 2}, {"stream", stream}});
    EXPECT_EQ(late.status, 429);
    EXPECT_EQ(late.json()["error"]["type"], "timeout_error");
    EXPECT_EQ(late.json()["error"]["code"], "timeout");
    EXPECT_THAT(late.json()["error"]["message"].get<std::string>(), HasSubstr("waited 0.1 s"));
    expect_retry(late, 1, 60);
    EXPECT_TRUE(server.drained()) << "both sequences must be gone";
    EXPECT_THAT(server.metrics(), HasSubstr(refused("waiting_time", 1)));
    EXPECT_THAT(server.metrics(), HasSubstr("num_waiting_tokens{model_name=\"echo\"} 0\n"));
  }
}

// What has its place is not hurried, however long it takes.
TEST(OpenAiOverload, WaitingTimeDoesNotCountWhatRuns) {
  BoundedServer server({.waiting_seconds = 0.2});
  server.echo.engine.turn_microseconds = 20000;
  const auto done = server.complete({{"prompt", std::string(30, 'a')}, {"temperature", 0}});
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ(done.json()["choices"][0]["finish_reason"], "stop");
}

TEST(OpenAiOverload, ARequestsTimeIsBoundedBeforeItsReplyBegins) {
  BoundedServer server({.request_seconds = 0.1});
  server.echo.engine.turn_microseconds = 5000;
  const Json endless{{"prompt", "ab"}, {"ignore_eos", true}, {"n", 3}};
  const auto late = server.complete(endless);
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(late.json()["error"]["type"], "timeout_error");
  EXPECT_EQ(late.json()["error"]["code"], "timeout");
  EXPECT_EQ(late.headers.at("x-should-retry"), "false");
  EXPECT_FALSE(late.headers.contains("retry-after"));
  EXPECT_TRUE(server.drained());
  EXPECT_THAT(server.metrics(), HasSubstr(refused("timeout", 1)));
}

TEST(OpenAiOverload, ARequestsTimeIsBoundedInAStream) {
  BoundedServer server({.request_seconds = 0.2});
  server.echo.engine.turn_microseconds = 5000;
  const auto late = server.complete({{"prompt", "ab"}, {"ignore_eos", true}, {"stream", true}});
  EXPECT_EQ(late.status, 200);
  const auto events = http::sse_events(late.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.front()["choices"][0]["text"].get<std::string>().size(), 1u);
  EXPECT_EQ(events.back(), "[DONE]");
  const Json& error = events[events.size() - 2]["error"];
  EXPECT_EQ(error["code"], "timeout");
  EXPECT_THAT(error["message"].get<std::string>(),
              testing::AllOf(HasSubstr("0.2 s"), HasSubstr("tokens were generated")));
  EXPECT_TRUE(server.drained());
}

// A client may ask for less than the server allows, never for more.
TEST(OpenAiOverload, TheFieldTimeoutShortens) {
  BoundedServer server({.request_seconds = 0.3});
  server.echo.engine.hold = true;
  const auto told = [&](double timeout) {
    return server.complete({{"prompt", "ab"}, {"timeout", timeout}})
        .json()["error"]["message"]
        .get<std::string>();
  };
  EXPECT_THAT(told(0.05), HasSubstr("its timeout of 0.05 s"));
  EXPECT_THAT(told(60), HasSubstr("its timeout of 0.3 s"));
  BoundedServer open({});
  open.echo.engine.hold = true;
  EXPECT_EQ(open.complete({{"prompt", "ab"}, {"timeout", 0.05}}).status, 504);
  for (const Json& bad : {Json(0), Json(-1), Json("5"), Json(1e9)}) {
    const auto refusal = open.complete({{"prompt", "ab"}, {"timeout", bad}});
    EXPECT_EQ(refusal.status, 400);
    EXPECT_EQ(refusal.json()["error"]["param"], "timeout");
  }
}

// A later request with less time must not wait for an earlier one's end.
TEST(OpenAiOverload, TheShortestTimeEndsFirst) {
  BoundedServer server({});
  server.echo.engine.hold = true;
  http::TestClient patient(server.server.port());
  patient.send("POST", "/v1/completions", R"({"prompt":"ab","timeout":30,"temperature":0})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 1; }));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(server.complete({{"prompt", "cd"}, {"timeout", 0.1}}).status, 504);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  server.echo.engine.hold = false;
  EXPECT_EQ(patient.response().status, 200);
}

TEST(OpenAiOverload, TooManyAtATimeAreCounted) {
  serve::ServerConfig config = local_config();
  config.max_concurrency = 1;
  BoundedServer server({}, config);
  server.echo.engine.hold = true;
  http::TestClient first(server.server.port());
  first.send("POST", "/v1/completions", R"({"prompt":"ab","temperature":0})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 1; }));
  // One connection for all: a refusal does not cost it.
  http::TestClient other(server.server.port());
  for (int i = 0; i < 3; ++i) {
    const auto busy = other.post("/v1/completions", {{"prompt", "ab"}});
    EXPECT_EQ(busy.status, 429);
    expect_retry(busy, 1, 60);
  }
  EXPECT_THAT(server.metrics(), HasSubstr(refused("concurrency", 3)));
  server.echo.engine.hold = false;
  EXPECT_EQ(first.response().status, 200);
}

// A template that takes as long as it likes, as one of a client's may.
class SlowTemplate : public text::ChatTemplate {
 public:
  Result<std::string> render(const text::Conversation&) const override {
    begun = true;
    begun.notify_all();
    over.wait(false);
    return std::string("ab");
  }
  mutable std::atomic<bool> begun{false};
  std::atomic<bool> over{false};
};

// The one worker is busy; whoever must be refused is, all the same.
TEST(OpenAiOverload, RefusalsDoNotQueueBehindWorkers) {
  serve::ServerConfig config = local_config();
  config.max_concurrency = 1;
  config.http.worker_threads = 1;
  const auto slow = std::make_shared<SlowTemplate>();
  const auto events = std::make_shared<service::EventQueue>();
  service::EchoEngine engine(events);
  service::EngineService service(service::echo_config(), engine, events,
                                 std::make_shared<service::ByteTokenizer>(), slow);
  serve::Server server(config, service);
  server.start();
  http::TestClient first(server.port());
  first.send("POST", "/v1/chat/completions", TestServer::with_messages({}).dump());
  slow->begun.wait(false);
  EXPECT_EQ(http::post_once(server.port(), "/v1/completions", {{"prompt", "ab"}}).status, 429);
  slow->over = true;
  slow->over.notify_all();
  EXPECT_EQ(first.response().status, 200);
}

TEST(OpenAiOverload, AnEngineThatHangsFailsBothProbes) {
  TestServer server;
  const auto status = [&](const char* path) {
    return http::TestClient(server.port()).call("GET", path).status;
  };
  EXPECT_EQ(status("/live"), 200);
  server.server.set_stalled(true);
  EXPECT_EQ(status("/live"), 503);
  EXPECT_EQ(status("/health"), 503);
  server.server.set_stalled(false);
  EXPECT_EQ(status("/live"), 200);
  EXPECT_EQ(status("/health"), 200);
}

}  // namespace
}  // namespace skiff::openai
