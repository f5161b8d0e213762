// serve/openai/routes.h -- the routes of the OpenAI protocol.
#pragma once
#include <vector>

#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"

namespace skiff {

// Routes /v1/chat/completions, /v1/completions and /v1/models. `keys` separate the prefix caches of
// clients.
std::vector<Route> openai_routes(ProtocolContext& context, const ApiKeys& keys);
// Routes /tokenize and /detokenize, with and without /v1.
std::vector<Route> tokenize_routes(ProtocolContext& context);

}  // namespace skiff
