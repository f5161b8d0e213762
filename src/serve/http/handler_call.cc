#include "serve/http/handler_call.h"

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "base/log.h"

namespace skiff::http {
namespace {

// The handler's handle. The end of the last one answers 500 if the handler has not answered.
class ReplyHandle : public HttpReply {
 public:
  explicit ReplyHandle(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~ReplyHandle() override { exchange_->abandon(); }
  void send(HttpResponse response) override { exchange_->send(std::move(response)); }
  void begin_stream(HttpResponse head) override { exchange_->begin_stream(head); }
  bool write(std::string part) override { return exchange_->write(part); }
  void end_stream() override { exchange_->end_stream(); }
  void when_sent(std::function<void()> sent) override { exchange_->when_sent(std::move(sent)); }
  void on_close(std::function<void()> closed) override { exchange_->on_close(std::move(closed)); }
  void on_worker(std::function<void()> job) override { exchange_->on_worker(std::move(job)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

// For an I/O thread or a worker. Whatever the handler throws ends this request alone.
void answer(const HttpHooks& hooks, const std::shared_ptr<HttpExchange>& exchange) noexcept try {
  auto request = exchange->unpark();
  if (!request) return;  // the client left while the request waited for a worker
  const auto reply = std::make_shared<ReplyHandle>(exchange);
  try {
    hooks.handler(std::move(*request), reply);
  } catch (const std::exception& e) {
    spdlog::error("a request handler threw: {}", escaped(e.what()));
    reply->send(hooks.failure(500, "internal error"));
  }
} catch (...) {
  exchange->give_up();
}

}  // namespace

HttpLane lane_of(const HttpCore& core, const HttpRequest& request) {
  const HttpLane lane = core.hooks.lane ? core.hooks.lane(request) : HttpLane::kWork;
  const bool large = request.body.size() >= core.config.large_body;
  return lane == HttpLane::kWork && large ? HttpLane::kLarge : lane;
}

HttpHeaders headers_of(const HttpHooks& hooks, const HttpRequest& request) {
  return hooks.headers ? hooks.headers(request) : HttpHeaders{};
}

void call_handler(const std::shared_ptr<HttpCore>& core,
                  const std::shared_ptr<HttpExchange>& exchange, HttpLane lane) {
  auto work = [core, exchange] { answer(core->hooks, exchange); };
  if (lane == HttpLane::kIo)
    work();
  else
    core->work(std::move(work), lane);
}

}  // namespace skiff::http
