#include "serve/router.h"

#include <fmt/format.h>

#include "base/log.h"
#include "serve/openai_error.h"

namespace skiff {
namespace {

bool matches(const std::string& pattern, const std::string& path) {
  if (pattern.empty() || pattern.back() != '*') return pattern == path;
  const size_t prefix = pattern.size() - 1;
  return path.size() > prefix && path.compare(0, prefix, pattern, 0, prefix) == 0;
}

}  // namespace

void Router::dispatch(HttpRequest request, std::shared_ptr<HttpReply> reply) const {
  const std::string& method = request.method == "HEAD" ? "GET" : request.method;
  std::string allowed;
  for (const Route& route : routes_) {
    if (!matches(route.path, request.path)) continue;
    if (route.method == method) return route.handler(std::move(request), std::move(reply));
    allowed += (allowed.empty() ? "" : ", ") + route.method;
  }
  const std::string place = escaped(request.method + " " + request.path);
  if (allowed.empty())
    return reply->send(error_response({.status = 404,
                                       .message = fmt::format("there is no route {}", place),
                                       .type = "invalid_request_error",
                                       .param = "",
                                       .code = "route_not_found"}));
  HttpResponse response = error_response(
      {.status = 405,
       .message = fmt::format("{} is not allowed here; the path answers {}", place, allowed),
       .type = "invalid_request_error",
       .param = "",
       .code = "method_not_allowed"});
  response.headers.emplace_back("Allow", allowed);
  reply->send(std::move(response));
}

}  // namespace skiff
