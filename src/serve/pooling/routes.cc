#include "serve/pooling/routes.h"

#include "serve/pooling/exchange.h"

namespace skiff::pooling {
namespace {

struct PathOf {
  const char* path;
  const RouteKind& (*kind)();
};
constexpr PathOf kPaths[] = {
    {"/v1/embeddings", embeddings_route}, {"/v1/reward", reward_route},
    {"/v1/chat/reward", reward_route},    {"/v1/classify", classify_route},
    {"/classify", classify_route},        {"/v1/rerank", rerank_route},
    {"/v2/rerank", rerank_route},         {"/rerank", rerank_route},
    {"/v1/score", score_route},           {"/score", score_route},
};

}  // namespace

std::vector<http::Route> pooling_routes(service::ProtocolContext& context,
                                        const http::ApiKeys& keys) {
  std::vector<http::Route> routes;
  for (const PathOf& entry : kPaths)
    routes.push_back(route_of(entry.path, entry.kind(), context, keys));
  return routes;
}

}  // namespace skiff::pooling
