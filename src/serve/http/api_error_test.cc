// Errors: the status, type and code that clients and programs match on.
#include "serve/http/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::http {
namespace {

TEST(OpenAiError, TypesAndCodesFollowTheStatus) {
  struct Case {
    int status;
    const char *type, *code;
  };
  for (const Case& c :
       {Case{400, "invalid_request_error", "invalid_request"},
        Case{401, "authentication_error", "invalid_api_key"},
        Case{403, "permission_error", "permission_denied"},
        Case{404, "invalid_request_error", "not_found"},
        Case{405, "invalid_request_error", "method_not_allowed"},
        Case{408, "timeout_error", "timeout"},
        Case{413, "invalid_request_error", "content_too_large"},
        Case{415, "invalid_request_error", "unsupported_media_type"},
        Case{429, "rate_limit_error", "rate_limit_exceeded"},
        Case{431, "invalid_request_error", "header_too_large"},
        Case{500, "server_error", "internal_error"},
        Case{501, "not_supported_error", "not_supported"},
        Case{502, "server_error", "internal_error"}, Case{503, "unavailable_error", "unavailable"},
        Case{504, "timeout_error", "timeout"}}) {
    const HttpResponse response = error_response(api_error(c.status, "why"));
    EXPECT_EQ(response.status, c.status);
    EXPECT_EQ(
        Json::parse(response.body),
        (Json{{"error",
               {{"message", "why"}, {"type", c.type}, {"param", nullptr}, {"code", c.code}}}}));
  }
}

TEST(OpenAiError, FailuresOfRequestsNameTheField) {
  const auto shown = [](Code code, const char* field) {
    const ApiError error = api_error(Error{code, "why", field}, "messages");
    return fmt::format("{} {} {} {}", error.status, error.type, error.param, error.code);
  };
  EXPECT_EQ(shown(Code::kInvalid, "n"), "400 invalid_request_error n invalid_value");
  EXPECT_EQ(shown(Code::kUnsupported, "n"), "400 invalid_request_error n unsupported_value");
  EXPECT_EQ(shown(Code::kNotFound, "messages"),
            "400 invalid_request_error messages missing_required_parameter");
  EXPECT_EQ(shown(Code::kInvalid, "input"), "400 invalid_request_error messages invalid_value");
  EXPECT_EQ(shown(Code::kInvalid, "input_length"),
            "400 invalid_request_error messages context_length_exceeded");
  EXPECT_EQ(shown(Code::kExhausted, ""), "429 rate_limit_error  rate_limit_exceeded");
  EXPECT_EQ(shown(Code::kCancelled, ""), "503 unavailable_error  unavailable");
  EXPECT_EQ(shown(Code::kInternal, ""), "500 server_error  internal_error");
}

TEST(OpenAiError, BytesThatAreNoTextCannotBreakAnAnswer) {
  const HttpResponse response = error_response(api_error(400, "a\xff\xc3 b"));
  EXPECT_EQ(Json::parse(response.body)["error"]["message"], "a\uFFFD\uFFFD b");
}

}  // namespace
}  // namespace skiff::http
