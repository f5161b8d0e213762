// serve/messages/routes.h -- Anthropic's Messages API: POST /v1/messages and
// /v1/messages/count_tokens.
#pragma once
#include <vector>

#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"

namespace skiff::messages {

// Headers of every reply on these paths: Anthropic's clients read the request's id by this name.
http::HttpHeaders messages_headers(const http::HttpRequest& request);

std::vector<http::Route> messages_routes(service::ProtocolContext& context,
                                         const http::ApiKeys& keys);

}  // namespace skiff::messages
