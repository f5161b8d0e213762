// What orchestrators and dashboards ask: health, metrics, version.
#include "serve/openai_error.h"
#include "serve/protocols.h"

namespace skiff {
namespace {

HttpResponse health(const Front& front) {
  if (front.gate.draining) return error_response(api_error(503, "the server is shutting down"));
  const Status status = front.service.health();
  if (!status) return error_response(api_error(503, status.error().what));
  return {.status = 200, .body = "", .content_type = ""};
}

HttpResponse metrics(const Front& front) {
  return {.status = 200,
          .body = front.service.metrics(),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

}  // namespace

std::vector<Route> probe_routes(Front& front) {
  const auto answer = [&front](HttpResponse (*make)(const Front&)) {
    return
        [&front, make](HttpRequest, std::shared_ptr<HttpReply> reply) { reply->send(make(front)); };
  };
  return {
      {"GET", "/health", answer(health)},
      {"GET", "/ping", answer(health)},
      {"POST", "/ping", answer(health)},
      {"GET", "/metrics", answer(metrics)},
      {"GET", "/version", answer([](const Front& front) {
         return json_response({{"version", front.config.version}});
       })},
  };
}

}  // namespace skiff
