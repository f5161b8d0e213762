// What orchestrators and dashboards ask: health, metrics, version.
#include "serve/http/api_error.h"
#include "serve/protocols.h"

namespace skiff {
namespace {

constexpr int kRetrySeconds = 5;

HttpResponse fine() { return {.status = 200, .body = "", .content_type = ""}; }

// Liveness: the process answers, and its engine does not hang. To start it anew would help nobody
// while it loads or drains.
HttpResponse live(const Front& front) {
  if (front.gate.stalled) return unavailable("the engine hangs", kRetrySeconds);
  return fine();
}

// Readiness: a request would be served.
HttpResponse health(const Front& front) {
  if (front.gate.draining) return unavailable("the server is shutting down", kRetrySeconds);
  if (front.gate.stalled) return unavailable("the engine hangs", kRetrySeconds);
  const Status status = front.service.health();
  if (!status) return unavailable(status.error().what, kRetrySeconds);
  return fine();
}

HttpResponse metrics(const Front& front) {
  return {.status = 200,
          .body = front.service.metrics(),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

}  // namespace

HttpResponse unavailable(const std::string& why, int retry_seconds) {
  HttpResponse response = error_response(api_error(503, why));
  response.headers.emplace_back("Retry-After", std::to_string(retry_seconds));
  return response;
}

std::vector<Route> probe_routes(Front& front) {
  const auto answer = [&front](HttpResponse (*make)(const Front&)) {
    return
        [&front, make](HttpRequest, std::shared_ptr<HttpReply> reply) { reply->send(make(front)); };
  };
  return {
      {"GET", "/live", answer(live), Access::kOpen},
      {"GET", "/health", answer(health), Access::kOpen},
      {"GET", "/ping", answer(health), Access::kOpen},
      {"POST", "/ping", answer(health), Access::kOpen},
      {"GET", "/metrics", answer(metrics)},
      {"GET", "/version", answer([](const Front& front) {
         return json_response({{"version", front.config.version}});
       })},
  };
}

std::vector<Route> boot_routes(std::function<std::string()> progress) {
  const auto alive = [](HttpRequest, std::shared_ptr<HttpReply> reply) { reply->send(fine()); };
  const auto loading = [progress = std::move(progress)](HttpRequest,
                                                        std::shared_ptr<HttpReply> reply) {
    reply->send(unavailable(progress(), kRetrySeconds));
  };
  return {
      {"GET", "/live", alive, Access::kOpen},
      {"GET", "/health", loading, Access::kOpen},
      {"GET", "/ping", loading, Access::kOpen},
      {"POST", "/ping", loading, Access::kOpen},
  };
}

}  // namespace skiff
