// serve/responses/routes.h -- OpenAI's Responses API, without stored responses: POST /v1/responses.
#pragma once
#include <vector>

#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"

namespace skiff::responses {

std::vector<http::Route> responses_routes(service::ProtocolContext& context,
                                          const http::ApiKeys& keys);

}  // namespace skiff::responses
