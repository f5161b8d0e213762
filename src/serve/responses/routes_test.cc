#include "serve/responses/routes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "serve/http/client_testing.h"
#include "serve/service/engine_testing.h"

namespace skiff::responses {
namespace {

// Takes an answer and keeps its status.
class StatusOfReply : public http::HttpReply {
 public:
  void send(http::HttpResponse response) override { status = response.status; }
  void begin_stream(http::HttpResponse) override {}
  bool write(std::string) override { return true; }
  void end_stream() override {}
  void when_sent(std::function<void()>) override {}
  void on_close(std::function<void()>) override {}
  void on_worker(std::function<void()> job) override { job(); }

  std::atomic<int> status{0};
};

// A response repeats fields of its request, so the body counts until it has been sent.
TEST(ResponsesRoutes, ABodyCountsWhileItsResponseIsMade) {
  service::EchoService echo;
  echo.engine.hold = true;
  auto context = std::make_shared<service::ProtocolContext>(
      service::ProtocolConfig{.model_names = {"echo"}}, echo.service, 0);
  const http::ApiKeys keys({});
  const auto routes = responses_routes(*context, keys);
  const auto reply = std::make_shared<StatusOfReply>();
  std::weak_ptr<const void> counted;
  {
    http::HttpRequest request{.method = "POST", .path = "/v1/responses"};
    request.body = R"({"input": "hi", "metadata": {"a": "b"}})";
    request.counted = std::make_shared<const int>(0);
    counted = request.counted;
    routes.front().handler(std::move(request), reply);
  }
  EXPECT_FALSE(counted.expired());
  echo.engine.hold = false;
  EXPECT_TRUE(http::eventually([&] { return reply->status == 200; }));
  EXPECT_TRUE(http::eventually([&] { return counted.expired(); }));
}

}  // namespace
}  // namespace skiff::responses
