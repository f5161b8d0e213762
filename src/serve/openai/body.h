// serve/openai/body.h -- what the OpenAI routes do before they know what is asked: bytes to JSON,
// and whether the model is ours.
#pragma once
#include <optional>
#include <variant>
#include <vector>

#include "serve/front.h"
#include "serve/http/api_error.h"

namespace skiff {

// The body as JSON; keys keep their order, because a template prints tools as the client wrote
// them. The router has refused other media types.
std::variant<OrderedJson, ApiError> read_body(const Front& front, const HttpRequest& request);

// A 404 unless the server goes by that name.
std::optional<ApiError> check_model(const Front& front, const std::string& name);

// A 400 for what the operator does not let requests decide (serve/service/request_policy.h).
std::optional<ApiError> check_policy(const Front& front, const Request& request);

// Unknown fields are told to the log (level debug), or refused if the server is strict about them.
std::optional<ApiError> check_unknown(const Front& front, const std::vector<std::string>& fields);

}  // namespace skiff
