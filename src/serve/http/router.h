// serve/http/router.h -- one table from (method, path) to handler.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/server.h"

namespace skiff {

// Who may call a route of a server that has API keys. Open routes are the probes.
enum class Access { kKey, kOpen };

// The handler of an open route must not wait for anything; that of a GET may take about a
// millisecond; that of a POST reads JSON and may take its time.
struct Route {
  std::string method;
  std::string path;  // exact, or a prefix if it ends in '*'
  HttpHandler handler;
  Access access = Access::kKey;
  bool generates = false;  // takes a place at the gate
};

// Stands before every answer of a router: a response refuses the request. What matches no route,
// by path or by method, is judged as kKey, so that no spelling of a path gets around a key.
using Guard = std::function<std::optional<HttpResponse>(const HttpRequest&, Access)>;

class Router {
 public:
  explicit Router(std::vector<Route> routes, Guard guard = nullptr)
      : routes_(std::move(routes)), guard_(std::move(guard)) {}

  // What dispatch() would answer without calling a handler: the guard's refusal, 404 for an unknown
  // path, 405 for a known one with another method, 413 for a probe with a body, 415 for a POST that
  // is not JSON. Looks at the head only. HEAD is answered by GET's handler.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;
  HttpLane lane(const HttpRequest& request) const;
  bool generates(const HttpRequest& request) const;
  void dispatch(HttpRequest request, std::shared_ptr<HttpReply> reply) const;

 private:
  const Route* find(const HttpRequest& request) const;
  HttpResponse lost(const HttpRequest& request) const;
  std::vector<Route> routes_;
  Guard guard_;
};

}  // namespace skiff
