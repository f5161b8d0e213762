// Bounds on the memory of one request, and on the time that others wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "serve/openai/server_testing.h"

namespace skiff::openai {
namespace {

using testing::HasSubstr;

int64_t resident_bytes() {
  long pages = 0, resident = 0;
  std::FILE* in = std::fopen("/proc/self/statm", "r");
  if (std::fscanf(in, "%ld %ld", &pages, &resident) != 2) resident = 0;
  std::fclose(in);
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

// The lists of a request with 2048 prompts are stored once, not once for each prompt.
TEST(OpenAiBounds, ListsAreSharedByAllPromptsOfACall) {
  std::vector<std::string> stops;
  stops.reserve(60);
  for (int i = 0; i < 60; ++i) stops.push_back(std::string(1000, static_cast<char>('a' + i % 26)));
  Json bias = Json::object(), words = Json::array();
  for (int i = 0; i < 258; ++i) bias[std::to_string(i)] = 1;
  for (int i = 0; i < 1000; ++i) words.push_back(std::vector<int>(60, i % 256));
  for (const Json& list :
       {Json{{"stop", stops}}, Json{{"bad_words_token_ids", words}}, Json{{"logit_bias", bias}}}) {
    TestServer server;
    server.echo.engine.hold = true;
    Json body{{"prompt", std::vector<std::string>(2048, "ab")}, {"max_tokens", 2}};
    body.update(list);
    const int64_t before = resident_bytes();
    http::TestClient client(server.port());
    client.send("POST", "/v1/completions", body.dump());
    for (int i = 0; i < 20 && server.echo.engine.running() < 2048; ++i)
      http::eventually([&] { return server.echo.engine.running() == 2048; });
    ASSERT_EQ(server.echo.engine.running(), 2048) << list.begin().key();
    EXPECT_LT(resident_bytes() - before, 100 << 20) << list.begin().key();
    server.echo.engine.hold = false;
    EXPECT_EQ(client.response().status, 200);
  }
}

TEST(OpenAiBounds, LogprobsOfAReplyHaveABound) {
  TestServer server;
  struct Case {
    Json body;
    const char* field;
    std::vector<const char*> parts;
  };
  const std::vector<std::string> prompts(512, "ab");
  const Case cases[] = {
      {{{"prompt", prompts}, {"n", 4}, {"max_tokens", 500}, {"logprobs", 20}},
       "logprobs",
       {"512 prompts", "n (4)", "max_tokens (500)", "21504000", "4194304", "--max-reply-logprobs"}},
      {{{"prompt", std::vector<std::string>(128, std::string(400, 'x'))},
        {"n", 16},
        {"max_tokens", 1},
        {"prompt_logprobs", 20}},
       "prompt_logprobs",
       {"n (16)", "--max-reply-logprobs"}},
      // A stream sends the log-probabilities of a prompt in one event.
      {{{"prompt", std::vector<std::string>(8, std::string(400, 'x'))},
        {"max_tokens", 1},
        {"stream", true},
        {"prompt_logprobs", 20}},
       "prompt_logprobs",
       {"stream", "32768"}},
  };
  server.echo.engine.hold = true;
  for (const Case& c : cases) {
    http::TestClient client(server.port());
    client.send("POST", "/v1/completions", c.body.dump());
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (server.echo.engine.running() > 0) {
      ADD_FAILURE() << c.field << " was let in";
      continue;
    }
    const auto response = client.response();
    ASSERT_EQ(response.status, 400) << response.body;
    const Json error = response.json()["error"];
    EXPECT_EQ(error["param"], c.field);
    for (const char* part : c.parts)
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  }
}

// 128 choices with 21 log-probabilities for each token are far above a hundred megabytes of JSON.
TEST(OpenAiBounds, ALargeReplyDoesNotSilenceOthers) {
  TestServer server;
  server.echo.engine.turn_microseconds = 2000;
  server.echo.engine.hold = true;
  http::TestClient large(server.port()), other(server.port());
  large.send("POST", "/v1/chat/completions",
             Json{{"messages", {{{"role", "user"}, {"content", std::string(250, 'x')}}}},
                  {"n", 128},
                  {"logprobs", true},
                  {"top_logprobs", 20},
                  {"temperature", 0},
                  {"max_tokens", 250}}
                 .dump());
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 128; }));
  other.send("POST", "/v1/completions",
             R"({"prompt":"abcd","stream":true,"ignore_eos":true,"max_tokens":500})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 129; }));
  server.echo.engine.hold = false;
  EXPECT_EQ(other.head().status, 200);
  double longest = 0;
  auto last = std::chrono::steady_clock::now();
  while (!other.chunk().empty()) {
    const auto now = std::chrono::steady_clock::now();
    longest = std::max(longest, std::chrono::duration<double>(now - last).count());
    last = now;
  }
  EXPECT_LT(longest, 1.0);
  const Json whole = large.response().json();
  ASSERT_EQ(whole["choices"].size(), 128u);
  EXPECT_EQ(whole["choices"][127]["logprobs"]["content"].size(), 250u);
}

// An engine that runs out of memory at the third sequence.
class FailingEngine : public service::EnginePort {
 public:
  void submit(NewSequence sequence) override {
    if (running.size() == 2) throw std::bad_alloc();
    running.insert(sequence.id);
  }
  void cancel(SeqId id) override { running.erase(id); }
  engine::EngineStats stats() const override { return {}; }
  std::set<SeqId> running;
};

TEST(OpenAiBounds, NothingRunsOnWhenAStartFails) {
  auto events = std::make_shared<service::EventQueue>();
  FailingEngine engine;
  service::EngineService service(service::echo_config(), engine, events,
                                 std::make_shared<service::ByteTokenizer>(),
                                 std::make_shared<service::PlainTemplate>());
  serve::Server server(local_config(), service);
  server.start();
  for (const Json& body : {Json{{"prompt", {"a", "b", "c"}}}, Json{{"prompt", "a"}, {"n", 3}}}) {
    EXPECT_EQ(http::post_once(server.port(), "/v1/completions", body).status, 500);
    EXPECT_TRUE(http::eventually([&] { return engine.running.empty(); }));
    engine.running.clear();
  }
}

// If memory runs out while one reply is made, that reply alone fails.
TEST(OpenAiBounds, ASinkThatFailsEndsItsRequestAlone) {
  service::EchoService echo;
  std::atomic<int> delivered{0}, cancelled{0};
  service::Request request;
  request.input = std::string("abc");
  request.ignore_eos = true;
  const auto failing = echo.service.submit(request, [&](const service::Reply& reply) {
    ++delivered;
    if (reply.finish == Finish::kNone) throw std::bad_alloc();
    cancelled += reply.finish == Finish::kCancelled;
  });
  ASSERT_TRUE(failing);
  EXPECT_TRUE(http::eventually([&] { return cancelled == 1 && echo.engine.running() == 0; }));
  EXPECT_EQ(delivered, 2);
  std::atomic<bool> finished{false};
  request.ignore_eos = false;
  ASSERT_TRUE(echo.service.submit(request, [&](const service::Reply& reply) {
    if (reply.last) finished = true;
  }));
  EXPECT_TRUE(http::eventually([&] { return finished.load(); }));
}

}  // namespace
}  // namespace skiff::openai
