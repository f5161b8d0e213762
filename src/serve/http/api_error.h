// serve/http/api_error.h -- failures as OpenAI's API words them:
// {"error": {"message", "type", "param", "code"}}. One table from status to type and code.
#pragma once
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "serve/http/server.h"

namespace skiff::http {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // empty: null
  std::string code;   // empty: null
  HttpHeaders headers = {};
};

// Adds Retry-After: the client should try again, here or elsewhere, after `seconds`.
ApiError retry_later(ApiError error, int seconds);

// Type and code follow from the status.
ApiError api_error(int status, std::string message);
// `input_field` is the endpoint's name for its input: "messages" or "prompt". Error::field may be
// "input" or "input_length" as in Service::prepare; kNotFound with a field means that the body
// lacks that field.
ApiError api_error(const Error& error, const std::string& input_field);

Json error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);
// Serializes Json; invalid UTF-8 is replaced and never makes it throw.
std::string json_text(const Json& json);
HttpResponse json_response(const Json& json);

}  // namespace skiff::http
