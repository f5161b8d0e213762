#include "serve/probes.h"

#include <optional>

#include "serve/http/api_error.h"

namespace skiff::serve {
namespace {

http::HttpResponse fine() { return {.status = 200, .body = "", .content_type = ""}; }

// Liveness: the process answers, and its engine does not hang. A server that loads or drains is
// alive: restarting it would not help.
http::HttpResponse live(const ServerContext& context) {
  if (context.stalled) return unavailable("the engine hangs");
  return fine();
}

// Readiness: a new request would be served.
http::HttpResponse health(const ServerContext& context) {
  const std::string why = unready(context);
  return why.empty() ? fine() : unavailable(why);
}

http::HttpResponse metrics(const ServerContext& context, std::optional<int> replica) {
  return {.status = 200,
          .body = context.protocol->service.metrics_of(replica) +
                  (context.queue ? context.queue->metrics() : ""),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

}  // namespace

std::string unready(const ServerContext& context) {
  if (context.protocol->admission.draining()) return "the server is shutting down";
  if (context.stalled) return "the engine hangs";
  const Status status = context.protocol->service.health();
  return status ? std::string() : status.error().what;
}

http::HttpResponse unavailable(const std::string& why) {
  constexpr int kRetrySeconds = 5;
  return http::error_response(http::retry_later(http::api_error(503, why), kRetrySeconds));
}

std::vector<http::Route> probe_routes(ServerContext& context) {
  const auto answer = [&context](http::HttpResponse (*make)(const ServerContext&)) {
    return
        [&context, make](const http::HttpRequest&, const std::shared_ptr<http::HttpReply>& reply) {
          reply->send(make(context));
        };
  };
  return {
      {"GET", "/live", answer(live), http::Access::kOpen},
      {"GET", "/health", answer(health), http::Access::kOpen},
      {"GET", "/ready", answer(health), http::Access::kOpen},
      {"GET", "/v2/health/live", answer(live), http::Access::kOpen},
      {"GET", "/v2/health/ready", answer(health), http::Access::kOpen},
      {"GET", "/ping", answer(health), http::Access::kOpen},
      {"POST", "/ping", answer(health), http::Access::kOpen},
      {"GET", "/metrics",
       [&context](const http::HttpRequest& request, const std::shared_ptr<http::HttpReply>& reply) {
         reply->send(metrics(context, request.replica));
       }},
      {"GET", "/version", answer([](const ServerContext& context) {
         return http::json_response({{"version", context.config.version}});
       })},
  };
}

std::vector<http::Route> boot_routes(std::function<std::string()> progress) {
  const auto alive = [](const http::HttpRequest&, const std::shared_ptr<http::HttpReply>& reply) {
    reply->send(fine());
  };
  const auto loading = [progress = std::move(progress)](
                           const http::HttpRequest&,
                           const std::shared_ptr<http::HttpReply>& reply) {
    reply->send(unavailable(progress()));
  };
  return {
      {"GET", "/live", alive, http::Access::kOpen},
      {"GET", "/health", loading, http::Access::kOpen},
      {"GET", "/ready", loading, http::Access::kOpen},
      {"GET", "/v2/health/live", alive, http::Access::kOpen},
      {"GET", "/v2/health/ready", loading, http::Access::kOpen},
      {"GET", "/ping", loading, http::Access::kOpen},
      {"POST", "/ping", loading, http::Access::kOpen},
  };
}

}  // namespace skiff::serve
