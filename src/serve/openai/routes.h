// serve/openai/routes.h -- the routes of the OpenAI protocol.
#pragma once
#include <memory>
#include <vector>

#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/openai/other_form.h"
#include "serve/service/protocol_context.h"

namespace skiff::openai {

// Routes /v1/chat/completions, /v1/completions and /v1/models. `keys` separate the prefix caches of
// clients. `other`, unless null, answers those bodies on the generation routes that it claims.
std::vector<http::Route> openai_routes(service::ProtocolContext& context, const http::ApiKeys& keys,
                                       const std::shared_ptr<const OtherForm>& other = nullptr);
// Routes /tokenize and /detokenize, with and without /v1.
std::vector<http::Route> tokenize_routes(service::ProtocolContext& context);

}  // namespace skiff::openai
