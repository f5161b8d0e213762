// serve/router.h -- one table from (method, path) to handler.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/http_server.h"

namespace skiff {

// Who may call a route of a server that has API keys.
enum class Access { kKey, kOpen };

struct Route {
  std::string method;
  std::string path;  // exact, or a prefix if it ends in '*'
  HttpHandler handler;
  Access access = Access::kKey;
};

class Router {
 public:
  explicit Router(std::vector<Route> routes) : routes_(std::move(routes)) {}
  // HEAD is answered by GET's handler. Unknown paths get 404, known ones with the wrong method 405.
  void dispatch(HttpRequest request, std::shared_ptr<HttpReply> reply) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace skiff
