// serve/pooling/exchange.h -- a kind of request of this room as a route of a server.
#pragma once
#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/pooling/route.h"
#include "serve/service/protocol_context.h"

namespace skiff::pooling {

// POST `path`: admits and parses a request, starts its prompts, and answers once all are pooled.
// Where the service's model is not pooled, or is pooled for something else, the answer is a 400
// that says how to start one that is. `keys` separate the prefix caches of clients. All that is
// referred to outlives the route.
http::Route route_of(const char* path, const RouteKind& kind, service::ProtocolContext& context,
                     const http::ApiKeys& keys);

}  // namespace skiff::pooling
