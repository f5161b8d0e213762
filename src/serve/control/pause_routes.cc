#include "serve/control/pause_routes.h"

#include <memory>

#include "serve/control/answers.h"
#include "serve/control/one_task.h"
#include "serve/control/pause_query.h"
#include "serve/http/api_error.h"

namespace skiff::control {
namespace {

using http::HttpRequest;
using http::HttpResponse;

HttpResponse pause(service::Service& service, service::Upkeep* upkeep, const PauseQuery& query,
                   const HttpRequest& request) {
  const auto aborted = service.pause(query.ending);
  if (query.forgets) service.forget_prefixes();
  if (upkeep) upkeep->restate();
  log_control(request, aborted.size());
  // Whoever resumes the service meanwhile has ended the wait.
  return success(request, {{"is_paused", service.paused()}, {"aborted", aborted_json(aborted)}});
}

}  // namespace

std::vector<http::Route> pause_routes(service::Service& service, service::Upkeep* upkeep) {
  const auto task = std::make_shared<OneTask>();  // for those that wait
  const auto answer = [&service, upkeep, task](const HttpRequest& request,
                                               const std::shared_ptr<http::HttpReply>& reply) {
    const auto query = read_pause_query(request.query);
    if (!query) return reply->send(failure(query.error()));
    if (!query->ending.waits) return reply->send(pause(service, upkeep, *query, request));
    const bool begun = task->begin([&service, upkeep, query = *query, request, reply] {
      return [reply, response = pause(service, upkeep, query, request)] { reply->send(response); };
    });
    if (!begun)
      reply->send(http::error_response(http::api_error(
          409, request.path +
                   ": another pause waits for requests under way; end them now with mode=abort, or "
                   "ask again when it is done")));
  };
  std::vector<http::Route> routes;
  for (const char* path : {"/v1/pause", "/pause"})
    routes.push_back(
        {.method = "POST", .path = path, .handler = answer, .access = http::Access::kAdmin});
  return routes;
}

}  // namespace skiff::control
