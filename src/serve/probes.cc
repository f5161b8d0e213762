#include "serve/probes.h"

#include "serve/http/api_error.h"

namespace skiff {
namespace {

HttpResponse fine() { return {.status = 200, .body = "", .content_type = ""}; }

// Liveness: the process answers, and its engine does not hang. A server that loads or drains is
// alive: restarting it would not help.
HttpResponse live(const ServerContext& context) {
  if (context.stalled) return unavailable("the engine hangs");
  return fine();
}

// Readiness: a new request would be served.
HttpResponse health(const ServerContext& context) {
  if (context.protocol->admission.draining()) return unavailable("the server is shutting down");
  if (context.stalled) return unavailable("the engine hangs");
  const Status status = context.protocol->service.health();
  if (!status) return unavailable(status.error().what);
  return fine();
}

HttpResponse metrics(const ServerContext& context) {
  return {.status = 200,
          .body = context.protocol->service.metrics(),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

}  // namespace

HttpResponse unavailable(const std::string& why) {
  constexpr int kRetrySeconds = 5;
  return error_response(retry_later(api_error(503, why), kRetrySeconds));
}

std::vector<Route> probe_routes(ServerContext& context) {
  const auto answer = [&context](HttpResponse (*make)(const ServerContext&)) {
    return [&context, make](HttpRequest, std::shared_ptr<HttpReply> reply) {
      reply->send(make(context));
    };
  };
  return {
      {"GET", "/live", answer(live), Access::kOpen},
      {"GET", "/health", answer(health), Access::kOpen},
      {"GET", "/ping", answer(health), Access::kOpen},
      {"POST", "/ping", answer(health), Access::kOpen},
      {"GET", "/metrics", answer(metrics)},
      {"GET", "/version", answer([](const ServerContext& context) {
         return json_response({{"version", context.config.version}});
       })},
  };
}

std::vector<Route> boot_routes(std::function<std::string()> progress) {
  const auto alive = [](HttpRequest, std::shared_ptr<HttpReply> reply) { reply->send(fine()); };
  const auto loading = [progress = std::move(progress)](HttpRequest,
                                                        std::shared_ptr<HttpReply> reply) {
    reply->send(unavailable(progress()));
  };
  return {
      {"GET", "/live", alive, Access::kOpen},
      {"GET", "/health", loading, Access::kOpen},
      {"GET", "/ping", loading, Access::kOpen},
      {"POST", "/ping", loading, Access::kOpen},
  };
}

}  // namespace skiff
