#include "serve/http/media_type.h"

#include <gtest/gtest.h>

namespace skiff::http {
namespace {

int status(MediaTypes allowed, HttpHeaders headers) {
  HttpRequest request;
  request.method = "POST";
  request.headers = std::move(headers);
  const auto refused = refuse_media_type(request, allowed);
  return refused ? refused->status : 200;
}

TEST(MediaType, OnlyJsonWhereOnlyJsonIsRead) {
  const auto json = [](HttpHeaders headers) {
    return status(MediaTypes::kJson, std::move(headers));
  };
  EXPECT_EQ(json({}), 200);
  EXPECT_EQ(json({{"content-type", "application/JSON; charset=utf-8"}}), 200);
  EXPECT_EQ(json({{"content-type", "application/problem+json"}}), 200);
  EXPECT_EQ(json({{"content-type", "application/octet-stream"}}), 415);
  EXPECT_EQ(json({{"content-type", "text/plain"}, {"authorization", "Bearer k"}}), 415);
}

// What a page may send without a preflight needs a header that no page can choose.
TEST(MediaType, FormsSayWhoSendsThem) {
  for (const char* type :
       {"text/plain", "Text/Plain;charset=utf-8", "multipart/form-data; boundary=b",
        "application/x-www-form-urlencoded"}) {
    const auto with = [&](const char* name, const char* value) {
      return status(MediaTypes::kAny, {{"content-type", type}, {name, value}});
    };
    EXPECT_EQ(with("accept", "*/*"), 415) << type;
    EXPECT_EQ(with("cookie", "a=b"), 415) << type;
    EXPECT_EQ(with("authorization", "Basic dTpw"), 415) << type;
    EXPECT_EQ(with("authorization", "bearer k"), 200) << type;
    EXPECT_EQ(with("x-api-key", "k"), 200) << type;
    EXPECT_EQ(with("origin", "https://a.example"), 200) << type;
    EXPECT_EQ(with("sec-fetch-site", "same-origin"), 200) << type;
  }
  EXPECT_EQ(status(MediaTypes::kAny, {{"content-type", "application/octet-stream"}}), 200);
  EXPECT_EQ(status(MediaTypes::kAny, {{"content-type", "audio/wav"}}), 200);
}

}  // namespace
}  // namespace skiff::http
