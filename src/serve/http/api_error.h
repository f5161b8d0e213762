// serve/http/api_error.h -- failures as OpenAI's API words them:
// {"error": {"message", "type", "param", "code"}}. One table from status to type and code.
#pragma once
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "serve/http/server.h"

namespace skiff {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // empty: null
  std::string code;   // empty: null
  HttpHeaders headers = {};
};

// The client should come again, here or elsewhere, after so many seconds.
ApiError retry_later(ApiError error, int seconds);

// Type and code follow from the status where nothing better is known.
ApiError api_error(int status, std::string message);
// `input_field` is what this endpoint calls its input: "messages" or "prompt". Error::field may be
// "input" or "input_length" as Service::prepare says; kNotFound with a field is a field that is
// missing from the body.
ApiError api_error(const Error& error, const std::string& input_field);

Json error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);
// Any Json of ours as bytes: invalid UTF-8 can never make it throw.
std::string json_text(const Json& json);
HttpResponse json_response(const Json& json);

}  // namespace skiff
