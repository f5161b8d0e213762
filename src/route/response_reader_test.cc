// Responses of backends, whole and in pieces, good and bad.
#include "route/response_reader.h"

#include <gtest/gtest.h>

#include "route/forward.h"

namespace skiff::route {
namespace {

struct Reading {
  ResponseReader reader;
  std::string body;
  size_t taken = 0;
};

Reading read(std::string_view bytes, size_t step = 1 << 20) {
  Reading reading;
  for (size_t at = 0; at < bytes.size() && !reading.reader.done() && !reading.reader.failed();
       at += step)
    reading.taken += reading.reader.take(bytes.substr(at, step), &reading.body);
  return reading;
}

TEST(ResponseReader, EveryFramingInAnyPieces) {
  const std::pair<const char*, bool> cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b \r\n\r\nhello", true},
      {"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nX-A: "
       "b\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: u\r\n\r\n",
       true},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello",
       true},
      {"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nhello", false}};
  for (const auto& [text, keeps] : cases)
    for (const size_t step : {1, 2, 3, 7, 1000}) {
      Reading reading = read(text, step);
      if (!keeps) reading.reader.end();
      EXPECT_TRUE(reading.reader.done()) << text << reading.reader.why();
      EXPECT_EQ(reading.body, "hello");
      EXPECT_EQ(reading.reader.head().status, 200);
      EXPECT_EQ(reading.reader.head().header("x-a"), "b");
      EXPECT_EQ(reading.reader.keeps_alive(), keeps);
      EXPECT_EQ(reading.taken, std::string_view(text).size());
    }
}

TEST(ResponseReader, TakesNoByteOfTheNextResponse) {
  const Reading reading = read("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n");
  EXPECT_TRUE(reading.reader.done());
  EXPECT_EQ(reading.taken, 27u);
}

TEST(ResponseReader, RefusesWhatCouldBeReadTwoWays) {
  for (const char* bad :
       {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200 OK\r\nBad Name: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n", "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"}) {
    EXPECT_TRUE(read(bad).reader.failed()) << bad;
    EXPECT_TRUE(read(bad, 1).reader.failed()) << bad;
  }
  EXPECT_TRUE(read("HTTP/1.1 200 OK\r\nX: " + std::string(70000, 'x')).reader.failed());
}

TEST(ResponseReader, AnEndWithinAResponseIsAFault) {
  for (const char* cut : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n"}) {
    Reading reading = read(cut);
    reading.reader.end();
    EXPECT_TRUE(reading.reader.failed()) << cut;
    EXPECT_EQ(reading.reader.began(), *cut != '\0');
  }
}

TEST(Forward, HeadersOfOneHopStay) {
  http::HttpRequest request{.method = "POST", .path = "/v1/chat/completions", .query = "a=b"};
  request.headers = {{"host", "router"},
                     {"connection", "close, X-Hop"},
                     {"x-hop", "1"},
                     {"te", "trailers"},
                     {"transfer-encoding", "chunked"},
                     {"authorization", "Bearer client"},
                     {"x-api-key", "client"},
                     {"content-type", "application/json"},
                     {"x-forwarded-for", "1.2.3.4"},
                     {"x-request-id", "forged"}};
  request.request_id = "id-1";
  request.client = "10.0.0.7:5555";
  EXPECT_EQ(
      forwarded_head(request, "b:1", 7, "secret"),
      "POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: b:1\r\n"
      "content-type: application/json\r\nAuthorization: Bearer secret\r\n"
      "Content-Length: 7\r\nX-Request-Id: id-1\r\nX-Forwarded-For: 1.2.3.4, 10.0.0.7\r\n\r\n");
  const std::string passed = forwarded_head(request, "b:1", 7, "");
  EXPECT_NE(passed.find("authorization: Bearer client\r\n"), std::string::npos);
  request.method = "HEAD";
  EXPECT_EQ(forwarded_head(request, "b:1", 0, "").substr(0, 4), "GET ");
}

TEST(Forward, ResponsesKeepTheirOwnHeaders) {
  const ResponseHead head{.status = 429,
                          .headers = {{"content-type", "application/json"},
                                      {"retry-after", "3"},
                                      {"connection", "keep-alive, x-private"},
                                      {"x-private", "1"},
                                      {"content-length", "5"},
                                      {"date", "now"},
                                      {"x-request-id", "id-1"}}};
  const http::HttpResponse response = returned_head(head);
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(response.headers, (http::HttpHeaders{{"retry-after", "3"}}));
}

}  // namespace
}  // namespace skiff::route
