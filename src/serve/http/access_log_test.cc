#include "serve/http/access_log.h"

#include <gtest/gtest.h>

namespace skiff::http {
namespace {

TEST(AccessLogTest, OneLineOfFields) {
  EXPECT_EQ(access_line({.method = "POST",
                         .target = "/v1/models",
                         .request_id = "id-1",
                         .client = "127.0.0.1:5",
                         .status = 200,
                         .sent = 812,
                         .seconds = 0.01234,
                         .complete = true}),
            "request client=127.0.0.1:5 method=POST path=/v1/models status=200 bytes=812 ms=12.3 "
            "id=id-1");
}

TEST(AccessLogTest, ProbesThatSucceedAreNoNews) {
  for (const char* probe : {"/health", "/live", "/ping", "/ready", "/health_generate",
                            "/v2/health/live", "/v2/health/ready", "/metrics"})
    EXPECT_EQ(access_level({.target = probe, .status = 200}), spdlog::level::debug) << probe;
  EXPECT_EQ(access_level({.target = "/health", .status = 503}), spdlog::level::info);
  EXPECT_EQ(access_level({.target = "/health2", .status = 200}), spdlog::level::info);
}

TEST(AccessLogTest, Item57NothingCanBeForged) {
  const std::string line = access_line({.method = "G\nT",
                                        .target = "/\r\n2026 request\x1b[31m\xe2\x80\xae\xc2\x85",
                                        .request_id = "a\u2028b",
                                        .client = "[::1]:5"});
  for (const char* bad : {"\r", "\n", "\x1b", "\xe2\x80", "\xc2\x85"})
    EXPECT_EQ(line.find(bad), std::string::npos) << line;
  EXPECT_NE(line.find("cut=true"), std::string::npos);
  EXPECT_LT(
      access_line({.method = std::string(9999, 'x'), .target = std::string(9999, 'y')}).size(),
      500u);
}

}  // namespace
}  // namespace skiff::http
