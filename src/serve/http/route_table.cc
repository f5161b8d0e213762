#include "serve/http/route_table.h"

#include <fmt/format.h>

#include <set>

#include "base/log.h"
#include "serve/http/api_error.h"
#include "serve/http/head.h"

namespace skiff::http {
namespace {

bool matches_path(const std::string& pattern, const std::string& path) {
  if (pattern.empty() || pattern.back() != '*') return pattern == path;
  const size_t prefix = pattern.size() - 1;
  return path.size() > prefix && path.compare(0, prefix, pattern, 0, prefix) == 0;
}

bool matches(const Route& route, const HttpRequest& request) {
  return matches_path(route.path, request.path) && (!route.applies || route.applies(request));
}

// Anybody may call such a route, so its bodies would let anybody use the server's memory.
std::optional<HttpResponse> refuse_content(const HttpRequest& request) {
  if (!announces_body(request)) return std::nullopt;
  return error_response(api_error(
      413, fmt::format("{} takes no body; send the request without one", escaped(request.path))));
}

}  // namespace

const Route* RouteTable::find(const HttpRequest& request) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const Route& route : routes_)
    if (route.method == method && matches(route, request)) return &route;
  return nullptr;
}

HttpResponse RouteTable::not_found(const HttpRequest& request) const {
  std::set<std::string> methods;  // once each, though several routes may share the path
  for (const Route& route : routes_)
    if (matches(route, request)) methods.insert(route.method);
  std::string allowed;
  for (const std::string& method : methods) allowed += (allowed.empty() ? "" : ", ") + method;
  const std::string place = escaped(request.method + " " + request.path);
  ApiError error = api_error(404, fmt::format("there is no route {}", place));
  error.code = "route_not_found";
  if (allowed.empty()) return error_response(error);
  HttpResponse response = error_response(
      api_error(405, fmt::format("{} is not allowed here; the path answers {}", place, allowed)));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

std::optional<HttpResponse> RouteTable::refuse(const HttpRequest& request) const {
  const Route* route = find(request);
  if (guard_)
    if (auto refused = guard_(request, route ? route->access : Access::kKey)) return refused;
  if (!route) return not_found(request);
  if (route->access == Access::kOpen || route->access == Access::kPublic)
    return refuse_content(request);
  return route->method == "POST" ? refuse_media_type(request, route->media) : std::nullopt;
}

HttpLane RouteTable::lane(const HttpRequest& request) const {
  const Route* route = find(request);
  if (route == nullptr) return HttpLane::kQuick;
  if (route->access == Access::kOpen) return HttpLane::kIo;
  return route->method == "GET" ? HttpLane::kQuick : HttpLane::kWork;
}

std::optional<HttpResponse> RouteTable::refuse_when_full(const HttpRequest& request) const {
  const Route* route = find(request);
  return route && route->refuse_when_full ? route->refuse_when_full() : std::nullopt;
}

void RouteTable::dispatch(HttpRequest request, std::shared_ptr<HttpReply> reply) const {
  if (auto refused = refuse(request)) return reply->send(std::move(*refused));
  const HttpHandler& handler = find(request)->handler;
  handler(std::move(request), std::move(reply));
}

}  // namespace skiff::http
