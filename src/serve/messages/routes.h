// serve/messages/routes.h -- Anthropic's Messages API: POST /v1/messages and
// /v1/messages/count_tokens.
#pragma once
#include <vector>

#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"

namespace skiff::messages {

std::vector<http::Route> messages_routes(service::ProtocolContext& context,
                                         const http::ApiKeys& keys);

}  // namespace skiff::messages
