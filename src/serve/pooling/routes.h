// serve/pooling/routes.h -- the routes of models that are pooled: embeddings, scores of texts and
// of pairs of texts.
#pragma once
#include <vector>

#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"

namespace skiff::pooling {

// They exist on every server: where the model generates, they answer 400 and say how to start one
// that is pooled. `keys` separate the prefix caches of clients.
std::vector<http::Route> pooling_routes(service::ProtocolContext& context,
                                        const http::ApiKeys& keys);

}  // namespace skiff::pooling
