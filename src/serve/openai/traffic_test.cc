// Many clients, slow clients, clients that hang up, and a server that shuts down.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

TEST(OpenAiTraffic, HangingUpCancels) {
  for (bool stream : {false, true}) {
    TestServer server;
    http::TestClient client(server.port());
    client.send("POST", "/v1/completions",
                Json{{"prompt", "abc"}, {"n", 3}, {"ignore_eos", true}, {"stream", stream}}.dump());
    server.echo.engine.turn_microseconds = 20000;
    ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 3; }));
    if (stream) {
      EXPECT_EQ(client.head().status, 200);
      client.chunk();
    }
    client.hang_up();
    EXPECT_TRUE(http::eventually([&] { return server.echo.engine.running() == 0; }));
    EXPECT_THAT(server.echo.service.metrics(), testing::HasSubstr("finished_reason=\"abort\""));
  }
}

TEST(OpenAiTraffic, SlowReadersAreDropped) {
  serve::ServerConfig config = local_config();
  config.http.max_unsent = 64 << 10;
  TestServer server(config);
  server.echo.engine.turn_microseconds = 1;
  server.echo.engine.hold = true;
  http::TestClient client(server.port());
  // Each token has as many log-probabilities as allowed, so that socket buffers fill.
  Json body{{"prompt", {"abc", "def"}},
            {"n", 64},
            {"ignore_eos", true},
            {"stream", true},
            {"logprobs", 20}};
  client.send("POST", "/v1/completions", body.dump());
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 128; }));
  server.echo.engine.hold = false;
  // 128 sequences of 500 tokens at about 1 kB would be 64 MB: far beyond what sockets buffer.
  EXPECT_TRUE(http::eventually([&] { return server.echo.engine.running() == 0; }));
  EXPECT_THAT(server.echo.service.metrics(), testing::HasSubstr("finished_reason=\"abort\""));
}

TEST(OpenAiTraffic, TooManyAtATimeAreToldSo) {
  serve::ServerConfig config = local_config();
  config.max_concurrency = 2;
  TestServer server(config);
  server.echo.engine.hold = true;
  http::TestClient a(server.port()), b(server.port());
  for (http::TestClient* client : {&a, &b})
    client->send("POST", "/v1/completions", R"({"prompt":"ab"})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 2; }));
  const auto busy = server.complete({{"prompt", "ab"}});
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.headers.at("retry-after"), "1");
  server.echo.engine.hold = false;
  EXPECT_EQ(a.response().status, 200);
  EXPECT_EQ(b.response().status, 200);
  EXPECT_EQ(server.complete({{"prompt", "ab"}}).status, 200);
}

TEST(OpenAiTraffic, SilentStreamsAreKeptAlive) {
  serve::ServerConfig config = local_config();
  config.stream_idle_seconds = 0.1;
  TestServer server(config);
  server.echo.engine.hold = true;
  http::TestClient client(server.port());
  client.send("POST", "/v1/completions", R"({"prompt":"ab","stream":true,"temperature":0})");
  EXPECT_EQ(client.head().status, 200);
  EXPECT_EQ(client.chunk(), ": keep-alive\n\n");
  server.echo.engine.hold = false;
  std::string body;
  for (std::string part; !(part = client.chunk()).empty();) body += part;
  EXPECT_EQ(http::sse_events(body).back(), "[DONE]");
}

TEST(OpenAiTraffic, ManyClientsEachGetTheirOwn) {
  TestServer server;
  std::vector<std::thread> clients;
  clients.reserve(16);
  std::atomic<int> good{0};
  for (int i = 0; i < 16; ++i)
    clients.emplace_back([&, i] {
      http::TestClient client(server.port());
      for (int j = 0; j < 5; ++j) {
        const std::string prompt = fmt::format("client {} call {}", i, j);
        const bool stream = (i + j) % 2;
        const auto response = client.post(
            "/v1/completions", {{"prompt", prompt}, {"temperature", 0}, {"stream", stream}});
        std::string text;
        if (stream) {
          for (const Json& event : http::sse_events(response.body))
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

TEST(OpenAiTraffic, DrainFinishesStreamsAndRefusesNewWork) {
  TestServer server;
  server.echo.engine.hold = true;
  http::TestClient client(server.port()), probe(server.port());
  client.send("POST", "/v1/completions", R"({"prompt":"abcd","stream":true,"temperature":0})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 1; }));
  std::atomic<bool> clean{false};
  std::thread drain([&] { clean = server.server.drain(10); });
  EXPECT_TRUE(http::eventually(
      [&] { return http::TestClient(server.port()).call("GET", "/health").status == 503; }));
  EXPECT_EQ(http::TestClient(server.port()).call("GET", "/live").status, 200);
  const auto late = probe.call("POST", "/v1/completions", R"({"prompt":"late"})");
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(late.headers.at("connection"), "close");
  EXPECT_TRUE(late.headers.contains("retry-after"));
  server.echo.engine.hold = false;
  EXPECT_EQ(http::sse_events(client.response().body).back(), "[DONE]");
  drain.join();
  EXPECT_TRUE(clean);
}

TEST(OpenAiTraffic, ForceEndsADrainAndTellsTheClient) {
  TestServer server;
  server.echo.engine.turn_microseconds = 20000;
  http::TestClient client(server.port());
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
  const auto events = http::sse_events(body);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events.at(events.size() - 2)["error"]["code"], "unavailable");
  EXPECT_TRUE(http::eventually([&] { return server.echo.engine.running() == 0; }));
}

// A request without a byte of its answer gets a 500, which a router passes on to no other server:
// the request may be what the engine failed on.
TEST(OpenAiTraffic, AFailedEngineEndsAllRepliesWithAnError) {
  TestServer server;
  server.echo.engine.turn_microseconds = 20000;
  http::TestClient client(server.port()), whole(server.port());
  client.send("POST", "/v1/completions", R"({"prompt":"abcd","stream":true,"ignore_eos":true})");
  EXPECT_EQ(client.head().status, 200);
  client.chunk();
  whole.send("POST", "/v1/completions", R"({"prompt":"abcd","ignore_eos":true})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 2; }));
  const auto start = std::chrono::steady_clock::now();
  server.server.fail(30);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  std::string body;
  for (std::string part; !(part = client.chunk()).empty();) body += part;
  const auto events = http::sse_events(body);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events.at(events.size() - 2)["error"]["type"], "server_error") << body;
  EXPECT_EQ(whole.response().status, 500);
  EXPECT_EQ(
      http::TestClient(server.port()).call("POST", "/v1/completions", R"({"prompt":"a"})").status,
      503);
}

TEST(OpenAiTraffic, AHalfRequestHoldsUpNoFailingServer) {
  TestServer server;
  http::TestClient client(server.port());
  client.send_raw("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{");
  ASSERT_TRUE(http::eventually(
      [&] { return http::TestClient(server.port()).call("GET", "/live").status == 200; }));
  const auto start = std::chrono::steady_clock::now();
  server.server.fail(0.2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
}  // namespace skiff::openai
