// Protocol-neutral refusals in the shape of OpenAI's errors.
#include "serve/openai/body.h"

#include <gtest/gtest.h>

namespace skiff::openai {
namespace {

std::string shown(service::AdmissionRefusal::Kind kind, int retry_seconds) {
  const http::ApiError error = admission_error({kind, "why", retry_seconds});
  std::string out = fmt::format("{} {} [{}] {} {}", error.status, error.type, error.param,
                                error.code, error.message);
  for (const auto& [name, value] : error.headers) out += fmt::format(" {}={}", name, value);
  return out;
}

TEST(OpenAiBody, RefusedAdmissionsHaveTheirStatusAndCode) {
  using enum service::AdmissionRefusal::Kind;
  EXPECT_EQ(shown(kDraining, 0), "503 unavailable_error [] unavailable why");
  EXPECT_EQ(shown(kConcurrency, 3),
            "429 rate_limit_error [] rate_limit_exceeded why Retry-After=3");
  EXPECT_EQ(shown(kQueueFull, 60),
            "429 rate_limit_error [] rate_limit_exceeded why Retry-After=60");
  EXPECT_EQ(shown(kUnknownModel, 0), "404 invalid_request_error [model] model_not_found why");
}

}  // namespace
}  // namespace skiff::openai
