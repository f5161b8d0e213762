#include "serve/openai_error.h"

namespace skiff {
namespace {

struct Kind {
  int status;
  const char* type;
  const char* code;
};

const Kind& kind_of(int status) {
  static constexpr Kind kKinds[] = {{400, "invalid_request_error", ""},
                                    {401, "authentication_error", "invalid_api_key"},
                                    {404, "invalid_request_error", "not_found"},
                                    {405, "invalid_request_error", "method_not_allowed"},
                                    {408, "timeout_error", "timeout"},
                                    {413, "invalid_request_error", "content_too_large"},
                                    {415, "invalid_request_error", "unsupported_media_type"},
                                    {417, "invalid_request_error", "expectation_failed"},
                                    {429, "rate_limit_error", "rate_limit_exceeded"},
                                    {431, "invalid_request_error", "header_too_large"},
                                    {503, "unavailable_error", "unavailable"}};
  static constexpr Kind kOther{500, "server_error", "internal_error"};
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
          .code = kind.code};
}

ApiError api_error(const Error& error, const std::string& input_field) {
  ApiError out = api_error(status_of(error.code), error.what);
  out.param = error.field;
  if (error.field == "input") out.param = input_field;
  if (error.field == "input_length") {
    out.param = input_field;
    out.code = "context_length_exceeded";
  } else if (error.code == Code::kInvalid) {
    out.code = "invalid_value";
  } else if (error.code == Code::kUnsupported) {
    out.code = "unsupported_value";
  }
  return out;
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
  return response;
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse json_response(const Json& json) { return {.status = 200, .body = json_text(json)}; }

}  // namespace skiff
