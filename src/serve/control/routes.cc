#include "serve/control/routes.h"

#include "base/log.h"
#include "serve/control/abort_body.h"
#include "serve/control/answers.h"
#include "serve/control/pause_routes.h"
#include "serve/control/upkeep_routes.h"
#include "serve/http/api_error.h"
#include "serve/openai/body.h"

namespace skiff::control {
namespace {

using http::HttpRequest;
using http::HttpResponse;
using service::Service;

using Control = HttpResponse (*)(Service&, const HttpRequest&);

HttpResponse resume(Service& service, const HttpRequest& request) {
  service.resume();
  log_control(request, 0);
  return success(request, {{"is_paused", false}});
}

HttpResponse is_paused(Service& service, const HttpRequest&) {
  return http::json_response({{"is_paused", service.paused()}});
}

HttpResponse forget_prefixes(Service& service, const HttpRequest& request) {
  service.forget_prefixes();
  log_control(request, 0);
  return success(request, Json::object());
}

// Ends the requests that a body names and returns them, or returns why the body names none.
std::variant<std::vector<service::Aborted>, HttpResponse> abort_named(Service& service,
                                                                      const HttpRequest& request,
                                                                      const char* list) {
  const auto body = openai::read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&body)) return http::error_response(*error);
  auto wish = read_abort(*std::get<JsonOwner<OrderedJson>>(body), list);
  if (!wish) return http::error_response(http::api_error(wish.error(), list));
  auto aborted = service.abort(std::move(*wish));
  log_control(request, aborted.size());
  return aborted;
}

HttpResponse abort_requests(Service& service, const HttpRequest& request) {
  auto done = abort_named(service, request, "req_ids");
  if (auto* refusal = std::get_if<HttpResponse>(&done)) return std::move(*refusal);
  return success(request,
                 {{"aborted", aborted_json(std::get<std::vector<service::Aborted>>(done))}});
}

// vLLM's form: the answer is empty.
HttpResponse abort_request_ids(Service& service, const HttpRequest& request) {
  auto done = abort_named(service, request, "request_ids");
  if (auto* refusal = std::get_if<HttpResponse>(&done)) return std::move(*refusal);
  return {.status = 200, .body = ""};
}

// FastDeploy's scheduler of several instances. Resetting it drops what it holds, which here is what
// runs and waits; the rest of it belongs to Redis.
HttpResponse scheduler(Service& service, const HttpRequest& request) {
  const auto body = openai::read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&body)) return http::error_response(*error);
  const OrderedJson& wish = *std::get<JsonOwner<OrderedJson>>(body);
  for (const char* other : {"load_shards_num", "reallocate_shard"})
    if (wish.contains(other) && wish[other] != false && !wish[other].is_null())
      return http::error_response(
          http::api_error(501, fmt::format("{}: the number of shards is said at the start, by "
                                           "--scheduler-load-shards-num of all instances",
                                           other)));
  if (!wish.is_object() || !wish.contains("reset") || wish["reset"] != true)
    return http::error_response(http::api_error(
        Error{Code::kInvalid, "the body must be {\"reset\": true}", "reset"}, "reset"));
  const auto aborted = service.abort({.all = true, .ids = {}});
  log_control(request, aborted.size());
  return http::json_response(
      {{"code", 0}, {"msg", "scheduler reset"}, {"aborted", aborted_json(aborted)}});
}

// Only what gave memory back, or replaces weights, may take requests again.
HttpResponse kept_paused(const Service& service, const service::Upkeep& upkeep) {
  const Status health = service.health();
  const bool sleeps = upkeep.absent().any();
  return http::error_response(http::api_error(
      409, fmt::format("{}; {}",
                       !health  ? health.error().what
                       : sleeps ? "the server sleeps"
                                : "the model's memory changes",
                       sleeps ? "wake it with POST /v1/wakeup" : "ask again when it is done")));
}

struct Entry {
  const char* method;
  const char* path;
  Control control;
};

constexpr Entry kControls[] = {
    {"POST", "/v1/resume", resume},
    {"GET", "/v1/is_paused", is_paused},
    {"POST", "/v1/abort_requests", abort_requests},
    {"POST", "/v1/reset_prefix_cache", forget_prefixes},
    {"POST", "/controller/scheduler", scheduler},
    {"POST", "/controller/reset_scheduler", scheduler},
    // vLLM's.
    {"POST", "/resume", resume},
    {"GET", "/is_paused", is_paused},
    {"POST", "/inference/v1/abort_requests", abort_request_ids},
    {"POST", "/abort_requests", abort_request_ids},
    {"POST", "/reset_prefix_cache", forget_prefixes},
};

struct Absent {
  const char* method;
  const char* path;
  const char* why;
};

constexpr char kExperts[] = "experts have no copies, so there is nothing to balance";

constexpr Absent kAbsent[] = {
    {"POST", "/rearrange_experts", kExperts},
    {"POST", "/get_per_expert_tokens_stats", kExperts},
    {"POST", "/check_redundant", kExperts},
};

}  // namespace

std::vector<http::Route> control_routes(service::ProtocolContext& context,
                                        service::Upkeep* upkeep) {
  std::vector<http::Route> routes;
  const auto add = [&](const char* method, const char* path, http::HttpHandler handler) {
    routes.push_back({.method = method,
                      .path = path,
                      .handler = std::move(handler),
                      .access = http::Access::kAdmin});
  };
  for (const Entry& entry : kControls)
    add(entry.method, entry.path,
        [&service = context.service, upkeep, control = entry.control](const HttpRequest& request,
                                                                      const auto& reply) {
          if (control == resume && upkeep && upkeep->keeps_paused())
            return reply->send(kept_paused(service, *upkeep));
          reply->send(control(service, request));
        });
  for (http::Route& route : pause_routes(context.service, upkeep))
    routes.push_back(std::move(route));
  for (http::Route& route : upkeep_routes(upkeep)) routes.push_back(std::move(route));
  for (const Absent& absent : kAbsent)
    add(absent.method, absent.path, [why = absent.why](const HttpRequest& request, auto reply) {
      reply->send(
          http::error_response(http::api_error(501, fmt::format("{}: {}", request.path, why))));
    });
  return routes;
}

}  // namespace skiff::control
