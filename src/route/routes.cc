#include "route/routes.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <initializer_list>
#include <memory>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "route/broadcast.h"
#include "route/pair_relay.h"
#include "route/relay.h"
#include "serve/http/api_error.h"

namespace skiff::route {
namespace {

using Reply = std::shared_ptr<http::HttpReply>;
constexpr Role kRoles[] = {Role::kMixed, Role::kPrefill, Role::kDecode};

http::HttpResponse fine() { return {.status = 200, .body = "", .content_type = ""}; }

// Returns true if a request could be passed on.
bool ready(const RouterCore& core) {
  const auto some = [&](Role role) { return !core.registry.usable(role).empty(); };
  return core.config.splitwise ? some(Role::kPrefill) && some(Role::kDecode) : some(Role::kMixed);
}

http::HttpResponse answer_ready(const RouterCore& core) {
  if (core.draining) return refusal(503, "the router is shutting down");
  return ready(core) ? fine() : refusal(503, "no instance is ready");
}

http::HttpResponse answer_metrics(const RouterCore& core) {
  return {.status = 200,
          .body = core.metrics.text(core.registry, core.relays.size()),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

http::HttpResponse answer_number(const RouterCore& core) {
  Json counts = Json::object();
  for (const Role role : kRoles) counts[std::string(name(role))] = core.registry.count(role);
  return http::json_response(counts);
}

http::HttpResponse answer_registered(const RouterCore& core) {
  Json lists = Json::object();
  for (const Role role : kRoles) lists[std::string(name(role))] = Json::array();
  for (const auto& backend : core.registry.all()) {
    Json one = instance_json(backend->instance);
    one["healthy"] = backend->health.up();
    one["running"] = backend->load.running;
    lists[std::string(name(backend->instance.role))].push_back(std::move(one));
  }
  return http::json_response(lists);
}

// Returns a handler whose answer is made on the router's thread.
http::HttpHandler answered_by(RouterCore& core, http::HttpResponse (*make)(const RouterCore&)) {
  return [&core, make](const http::HttpRequest&, const Reply& reply) {
    net::post(core.io, [&core, make, reply] { reply->send(make(core)); });
  };
}

void refuse_registration(RouterCore& core, const Reply& reply, int status, const std::string& why) {
  ++core.metrics.refused_registrations;
  spdlog::warn("a registration was refused: {}", escaped(why));
  reply->send(refusal(status, why));
}

void accept_registration(RouterCore& core, const Instance& instance, const Reply& reply) {
  ++core.metrics.registrations;
  const auto put = core.registry.put(instance, /*fixed=*/false, Clock::now());
  if (!put) return refuse_registration(core, reply, 503, put.error().what);
  reply->send(http::json_response({{"status", "success"}}));
}

// What registers is asked for its health before anything is sent to it. An instance that is known
// and up is not asked again: this is its heartbeat.
void take_registration(RouterCore& core, Prober& prober, const std::string& body,
                       const Reply& reply) {
  const auto instance = parse_instance(body);
  if (!instance) return refuse_registration(core, reply, 400, instance.error().what);
  if (const Status fits = core.registry.check(*instance); !fits)
    return refuse_registration(core, reply, 400, fits.error().what);
  auto backend = core.registry.find(instance->url());
  if (backend && backend->health.up()) return accept_registration(core, *instance, reply);
  const bool known = backend != nullptr;
  if (!known) backend = std::make_shared<Backend>(*instance, false, 1, Clock::now());
  prober.probe(backend, [&core, instance = *instance, known, reply](bool good) {
    if (!good)
      return refuse_registration(
          core, reply, 503, instance.url() + " does not answer /health with 200 to this router");
    accept_registration(core, instance, reply);
    // Its probe was made on a stand-in.
    if (const auto put = core.registry.find(instance.url()); put && !known)
      if (put->health.probed(true, core.health)) spdlog::info("{} has registered", put->url);
  });
}

bool among(std::string_view path, std::initializer_list<std::string_view> paths) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

// What pairs can serve: generations by the protocol that has disaggregate_info, and what needs no
// generation, which a decode instance answers alone.
std::optional<http::HttpResponse> refuse_for_pairs(const http::HttpRequest& request) {
  if (request.method == "GET" || request.method == "HEAD" ||
      among(request.path, {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize",
                           "/v1/tokenize", "/v1/detokenize"}))
    return std::nullopt;
  return refusal(400,
                 "pairs of prefill and decode instances (--splitwise) serve "
                 "/v1/chat/completions and /v1/completions, but not " +
                     escaped(request.path));
}

std::shared_ptr<Relay> relay_of(RouterCore& core, Incoming incoming) {
  if (!core.config.splitwise) return std::make_shared<Relay>(core, std::move(incoming));
  if (among(incoming.request.path, {"/v1/chat/completions", "/v1/completions"}))
    return std::make_shared<PairRelay>(core, std::move(incoming));
  return std::make_shared<Relay>(core, std::move(incoming), Role::kDecode);
}

// Runs on an I/O thread, or on a worker for a large body.
void pass_on(RouterCore& core, http::HttpRequest request, const Reply& reply) {
  if (core.config.splitwise)
    if (auto refused = refuse_for_pairs(request)) return reply->send(std::move(*refused));
  auto incoming = std::make_shared<Incoming>();
  incoming->arrived = Clock::now();
  incoming->body = std::make_shared<const std::string>(std::move(request.body));
  if (!incoming->body->empty())
    incoming->prompt = read_prompt(*incoming->body, core.config.prompts);
  incoming->request = std::move(request);
  incoming->reply = reply;
  ++core.open;
  net::post(core.io, [&core, incoming] { relay_of(core, std::move(*incoming))->start(); });
}

}  // namespace

std::vector<http::Route> router_routes(RouterCore& core, Prober& prober) {
  using http::Access;
  const http::HttpHandler pass = [&core](http::HttpRequest request, const Reply& reply) {
    pass_on(core, std::move(request), reply);
  };
  const auto full = [&core]() -> std::optional<http::HttpResponse> {
    if (core.open < core.config.max_concurrency) return std::nullopt;
    return refusal(429, fmt::format("{} requests are under way, as many as the router takes",
                                    core.config.max_concurrency));
  };
  std::vector<http::Route> routes{
      {"GET", "/health", [](const http::HttpRequest&, const Reply& reply) { reply->send(fine()); },
       Access::kOpen},
      {"GET", "/live", [](const http::HttpRequest&, const Reply& reply) { reply->send(fine()); },
       Access::kOpen},
      {"GET", "/ready", answered_by(core, answer_ready), Access::kOpen},
      {"GET", "/health_generate", answered_by(core, answer_ready), Access::kOpen},
      {"GET", "/v2/health/live",
       [](const http::HttpRequest&, const Reply& reply) { reply->send(fine()); }, Access::kOpen},
      {"GET", "/v2/health/ready", answered_by(core, answer_ready), Access::kOpen},
      {"GET", "/metrics", answered_by(core, answer_metrics)},
      {"GET", "/registered_number", answered_by(core, answer_number)},
      {"GET", "/registered", answered_by(core, answer_registered), Access::kAdmin},
      {"POST", "/register",
       [&core, &prober](http::HttpRequest request, const Reply& reply) {
         net::post(core.io, [&core, &prober, body = std::move(request.body), reply] {
           take_registration(core, prober, body, reply);
         });
       },
       Access::kAdmin},
  };
  for (http::Route& route : broadcast_routes(core)) routes.push_back(std::move(route));
  for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"})
    routes.push_back({.method = method,
                      .path = "*",
                      .handler = pass,
                      .refuse_when_full = full,
                      .media = http::MediaTypes::kAny});
  return routes;
}

}  // namespace skiff::route
