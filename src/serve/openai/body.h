// serve/openai/body.h -- what the OpenAI routes do before they know what is asked: bytes to JSON,
// and whether the model is ours.
#pragma once
#include <optional>
#include <variant>
#include <vector>

#include "base/json.h"
#include "serve/http/api_error.h"
#include "serve/service/admit.h"
#include "serve/service/protocol_config.h"
#include "serve/service/service.h"

namespace skiff {

// The body as JSON; keys keep their order, because a template prints tools as the client wrote
// them. The route table has refused other media types.
std::variant<OrderedJson, ApiError> read_body(const HttpRequest& request);

// 503, 429 with Retry-After, or 404 with the code model_not_found.
ApiError api_error(const AdmissionRefusal& refusal);

// A 404 unless the server goes by that name.
std::optional<ApiError> check_model(const AdmissionControl& admission, const std::string& name);

// A 400 for what the operator does not let requests decide (serve/service/request_policy.h).
std::optional<ApiError> check_policy(const RequestPolicy& policy, const Request& request);

// Unknown fields are told to the log (level debug), or refused if the server is strict about them.
std::optional<ApiError> check_unknown(const ProtocolConfig& config,
                                      const std::vector<std::string>& fields);

}  // namespace skiff
