#include "serve/http/api_error.h"

namespace skiff::http {
namespace {

struct Kind {
  int status;
  const char* type;
  const char* code;
};

// Clients choose their exception and whether to retry by the status (408, 409, 429, 5xx are
// retried); programs match on codes.
constexpr Kind kKinds[] = {{400, "invalid_request_error", "invalid_request"},
                           {401, "authentication_error", "invalid_api_key"},
                           {403, "permission_error", "permission_denied"},
                           {404, "invalid_request_error", "not_found"},
                           {405, "invalid_request_error", "method_not_allowed"},
                           {408, "timeout_error", "timeout"},
                           {409, "invalid_request_error", "conflict"},
                           {413, "invalid_request_error", "content_too_large"},
                           {415, "invalid_request_error", "unsupported_media_type"},
                           {417, "invalid_request_error", "expectation_failed"},
                           {429, "rate_limit_error", "rate_limit_exceeded"},
                           {431, "invalid_request_error", "header_too_large"},
                           {501, "not_supported_error", "not_supported"},
                           {503, "unavailable_error", "unavailable"},
                           {504, "timeout_error", "timeout"}};
constexpr Kind kOther{500, "server_error", "internal_error"};

const Kind& kind_of(int status) {
  for (const Kind& kind : kKinds)
    if (kind.status == status) return kind;
  return kOther;
}

int status_of(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kUnsupported:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kExhausted:
      return 429;
    case Code::kCancelled:
      return 503;
    case Code::kInternal:
      return 500;
  }
  return 500;
}

}  // namespace

ApiError api_error(int status, std::string message) {
  const Kind& kind = kind_of(status);
  return {.status = status,
          .message = std::move(message),
          .type = kind.type,
          .param = "",
          .code = kind.code,
          .headers = {}};
}

ApiError api_error(const Error& error, const std::string& input_field) {
  const bool missing = error.code == Code::kNotFound && !error.field.empty();
  ApiError out = api_error(missing ? 400 : status_of(error.code), error.what);
  out.param = error.field == "input" || error.field == "input_length" ? input_field : error.field;
  if (error.field == "input_length")
    out.code = "context_length_exceeded";
  else if (missing)
    out.code = "missing_required_parameter";
  else if (error.code == Code::kInvalid)
    out.code = "invalid_value";
  else if (error.code == Code::kUnsupported)
    out.code = "unsupported_value";
  return out;
}

ApiError retry_later(ApiError error, int seconds) {
  error.headers.emplace_back("Retry-After", std::to_string(seconds));
  return error;
}

Json error_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response = json_response(error_json(error));
  response.status = error.status;
  response.headers.insert(response.headers.end(), error.headers.begin(), error.headers.end());
  return response;
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse json_response(const Json& json) { return {.status = 200, .body = json_text(json)}; }

}  // namespace skiff::http
