#include "serve/info_routes.h"

#include <map>
#include <utility>

#include "serve/http/api_error.h"
#include "serve/probes.h"

namespace skiff::serve {
namespace {

// FastDeploy's /load returns this list of routes; other servers' /load returns the numbers beside
// it.
Json v1_routes(const std::vector<http::Route>& routes) {
  std::map<std::string, Json> methods;
  for (const http::Route& route : routes)
    if (route.path.starts_with("/v1")) methods[route.path].push_back(route.method);
  Json list = Json::array();
  for (auto& [path, names] : methods)
    list.push_back({{"path", path}, {"methods", std::move(names)}, {"tags", Json::array()}});
  return list;
}

http::HttpResponse load(const ServerContext& context, const Json& routes) {
  const service::ServiceLoad load = context.protocol->service.load();
  return http::json_response({{"server_load", load.running + load.waiting},
                              {"running", load.running},
                              {"waiting", load.waiting},
                              {"kv_cache_usage", load.kv_used},
                              {"routes", routes}});
}

}  // namespace

std::vector<http::Route> info_routes(ServerContext& context,
                                     const std::vector<http::Route>& others) {
  return {
      {"GET", "/load",
       [&context, routes = v1_routes(others)](const http::HttpRequest&,
                                              const std::shared_ptr<http::HttpReply>& reply) {
         reply->send(load(context, routes));
       }},
      {"GET", "/config-info",
       [&context](const http::HttpRequest&, const std::shared_ptr<http::HttpReply>& reply) {
         const OrderedJson& info = context.config.config_info;
         const auto replace = OrderedJson::error_handler_t::replace;
         reply->send(
             {.status = 200, .body = info.is_null() ? "{}" : info.dump(-1, ' ', false, replace)});
       }},
  };
}

std::vector<http::Route> observing_routes(ServerContext& context) {
  std::vector<http::Route> routes = probe_routes(context);
  for (http::Route& route : info_routes(context, {})) routes.push_back(std::move(route));
  return routes;
}

}  // namespace skiff::serve
