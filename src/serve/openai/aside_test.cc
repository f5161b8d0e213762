// What goes on aside ends its request as a handler does, and not at all for who has left.
#include "serve/openai/aside.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "serve/http/client_testing.h"
#include "serve/openai/routes.h"
#include "serve/service/engine_testing.h"

namespace skiff::openai {
namespace {

// A reply whose client can leave.
class LeftReply : public http::HttpReply {
 public:
  void send(http::HttpResponse) override { ++sends; }
  void begin_stream(http::HttpResponse) override {}
  bool write(std::string) override { return true; }
  void end_stream() override {}
  void when_sent(std::function<void()>) override {}
  void on_close(std::function<void()> given) override { close = std::move(given); }
  void on_worker(std::function<void()>) override {}
  std::function<void()> close;
  std::atomic<int> sends{0};
};

// A server whose jobs wait until the test has them run.
class OpenAiAside : public testing::Test {
 protected:
  std::shared_ptr<service::ProtocolContext> context() {
    auto out = std::make_shared<service::ProtocolContext>(
        service::ProtocolConfig{.model_names = {"echo"}}, echo_.service, 0);
    out->aside = [this](auto job) { waiting_.push_back(std::move(job)); };
    return out;
  }
  void go_on() {
    for (const auto& job : waiting_) job();
    waiting_.clear();
  }
  service::EchoService echo_;
  std::vector<std::function<void()>> waiting_;
  const std::shared_ptr<LeftReply> reply_ = std::make_shared<LeftReply>();
};

TEST_F(OpenAiAside, WhoLeavesBeforeHisTurnIsPassedOver) {
  const auto with_threads = context();
  int ran = 0;
  for (const bool leaves : {false, true}) {
    go_on_aside(*with_threads, reply_, [&ran] { ++ran; });
    if (leaves) reply_->close();
    go_on();
  }
  EXPECT_EQ(ran, 1);
}

TEST_F(OpenAiAside, WhatIsThrownEndsWithItsReply) {
  go_on_aside(*context(), reply_, [kept = reply_] { throw std::runtime_error("secret"); });
  EXPECT_EQ(reply_.use_count(), 2);
  EXPECT_NO_THROW(go_on());
  EXPECT_EQ(reply_.use_count(), 1);
}

TEST_F(OpenAiAside, WithoutThreadsItIsDoneHere) {
  const auto alone = context();
  alone->aside = nullptr;
  int ran = 0;
  go_on_aside(*alone, reply_, [&ran] { ++ran; });
  EXPECT_EQ(ran, 1);
}

// Requests with a form go on aside, all others where they are.
TEST_F(OpenAiAside, FormsAreCompiledThere) {
  const auto with_threads = context();
  const http::ApiKeys keys({});
  const auto routes = openai_routes(*with_threads, keys, nullptr);
  const auto ask = [&](const char* more) {
    http::HttpRequest request{.method = "POST", .path = "/v1/chat/completions"};
    request.body = fmt::format(R"({{"messages":[{{"role":"user","content":"hi"}}]{}}})", more);
    routes.front().handler(std::move(request), reply_);
    return waiting_.size();
  };
  EXPECT_EQ(ask(""), 0u);
  EXPECT_EQ(ask(R"(,"guided_choice":["a","b"])"), 1u);
  EXPECT_EQ(ask(R"(,"response_format":{"type":"json_object"})"), 2u);
  go_on();
  EXPECT_TRUE(http::eventually([&] { return reply_->sends == 3; }));
}

}  // namespace
}  // namespace skiff::openai
