// serve/openai/body.h -- what all OpenAI routes share: the body as JSON, and checks of model,
// policy and unknown fields.
#pragma once
#include <optional>
#include <variant>
#include <vector>

#include "base/json_owner.h"
#include "serve/http/api_error.h"
#include "serve/service/admit.h"
#include "serve/service/protocol_config.h"
#include "serve/service/service.h"

namespace skiff::openai {

// Parses the body as JSON. Keys keep their order, because a template prints tools as the client
// wrote them. The route table has refused other media types.
std::variant<JsonOwner<OrderedJson>, http::ApiError> read_body(const http::HttpRequest& request);

// The tag of a request whose id, operation, model and `streamed` are given.
service::SharedTag tag_of(const http::HttpRequest& request, service::RequestTag tag);

// The refusal as 503, as 429 with Retry-After, or as 404 with the code model_not_found.
http::ApiError admission_error(const service::AdmissionRefusal& refusal);

// A 404 unless the server has a model of that name.
std::optional<http::ApiError> check_model(const service::AdmissionControl& admission,
                                          const std::string& name);

// A 400 for options that the operator does not leave to requests (serve/service/request_policy.h).
std::optional<http::ApiError> check_policy(const service::RequestPolicy& policy,
                                           const service::Request& request);

// Logs unknown fields (level debug), or refuses them if the server is configured so.
std::optional<http::ApiError> check_unknown(const service::ProtocolConfig& config,
                                            const std::vector<std::string>& fields);

}  // namespace skiff::openai
