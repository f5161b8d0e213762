// serve/pooling/exchange.h -- one request of this room from its bytes to its reply.
#pragma once
#include <memory>

#include "serve/http/api_keys.h"
#include "serve/pooling/route.h"
#include "serve/service/protocol_context.h"

namespace skiff::pooling {

// Admits and parses the request, starts its prompts, and answers once all are pooled. Where the
// service's model is not pooled, or is pooled for something else, the answer is a 400 that says how
// to start one that is.
void answer(service::ProtocolContext& context, const http::ApiKeys& keys, const RouteKind& kind,
            http::HttpRequest request, std::shared_ptr<http::HttpReply> reply);

}  // namespace skiff::pooling
