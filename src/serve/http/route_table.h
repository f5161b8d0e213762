// serve/http/route_table.h -- one table from (method, path) to handler.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/media_type.h"
#include "serve/http/server.h"

namespace skiff::http {

// Which requests may call a route.
enum class Access {
  kKey,     // those that the guard lets pass: on a server that has API keys, those with a key
  kPublic,  // those without a key, too, if they came by one of the server's names
  kOpen,    // all: the probes
  kAdmin,   // those with a key of the operator's
};

// The handler of an open route must not wait for anything; the handler of a GET may take about a
// millisecond; the handler of a POST runs on a worker and may take longer.
struct Route {
  std::string method;
  std::string path;  // exact, or a prefix if it ends in '*'
  HttpHandler handler;
  Access access = Access::kKey;
  // Asked on an I/O thread for every complete request, before it takes a worker: a response refuses
  // the request. May be empty; must be quick.
  std::function<std::optional<HttpResponse>()> refuse_when_full = nullptr;
  // Asked with the request's head: if false, the table goes on as if the route were not there, so
  // that routes for different clients may share a path. May be empty; must be quick.
  std::function<bool(const HttpRequest&)> applies = nullptr;
  // Bodies of a POST. A page of another origin sends no other method without a preflight.
  MediaTypes media = MediaTypes::kJson;
};

// Called before a table answers anything: a response refuses the request. A request that matches no
// route, by path or by method, is judged as kKey, so that no spelling of a path bypasses the key.
using Guard = std::function<std::optional<HttpResponse>(const HttpRequest&, Access)>;

class RouteTable {
 public:
  explicit RouteTable(std::vector<Route> routes, Guard guard = nullptr)
      : routes_(std::move(routes)), guard_(std::move(guard)) {}

  // Returns what dispatch() would answer without calling a handler: the guard's refusal, 404 for an
  // unknown path, 405 for a known path with another method, 413 for a probe with a body, 415 for a
  // POST whose media type the route does not take. Reads the head only. The handler of GET answers
  // HEAD.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;
  HttpLane lane(const HttpRequest& request) const;
  // The answer of the route's own refuse_when_full; nothing if it has none.
  std::optional<HttpResponse> refuse_when_full(const HttpRequest& request) const;
  void dispatch(HttpRequest request, std::shared_ptr<HttpReply> reply) const;

 private:
  const Route* find(const HttpRequest& request) const;
  HttpResponse not_found(const HttpRequest& request) const;
  std::vector<Route> routes_;
  Guard guard_;
};

}  // namespace skiff::http
