// The HTTP layer alone: framing, limits, deadlines, pipelining, hostile bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/load_error.h"
#include "serve/http_server.h"
#include "serve/test_client.h"

namespace skiff {
namespace {

HttpConfig local() {
  HttpConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  return config;
}

HttpResponse plain(int status, const std::string& text) {
  return {.status = status, .body = text, .content_type = "text/plain", .headers = {}};
}

// Answers "METHOD path body"; /slow does so after 100 ms, /drop never does.
void echo(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  if (request.path == "/drop") return;
  if (request.path == "/throw") throw std::runtime_error("secret");
  if (request.path == "/slow") std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (request.path == "/stream") {
    reply->begin_stream(plain(200, "one"));
    reply->write("two");
    reply->write("");
    return reply->end_stream();
  }
  reply->send(
      plain(200, request.method + " " + request.path + " " + request.query + " " + request.body));
}

struct Echo {
  explicit Echo(HttpConfig config = local()) : server(config, echo, plain) { server.start(); }
  uint16_t port() const { return server.port(); }
  HttpServer server;
};

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 500 && !holds(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

TEST(HttpServerTest, KeepsConnectionsAlive) {
  Echo server;
  TestClient client(server.port());
  for (int i = 0; i < 50; ++i) {
    const auto response = client.call("POST", "/a%20b?q=1", "body " + std::to_string(i));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /a b q=1 body " + std::to_string(i));
    EXPECT_EQ(response.headers.at("connection"), "keep-alive");
  }
  EXPECT_EQ(server.server.connections(), 1);
}

TEST(HttpServerTest, ClosesWhenAskedTo) {
  Echo server;
  TestClient client(server.port());
  EXPECT_EQ(client.call("GET", "/x", "", "Connection: close\r\n").headers.at("connection"),
            "close");
  EXPECT_FALSE(client.fill());
  TestClient old(server.port());
  old.send_raw("GET /stream HTTP/1.0\r\n\r\n");
  const auto response = old.response();
  EXPECT_EQ(response.body, "onetwo");
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
}

TEST(HttpServerTest, StreamsAreChunked) {
  Echo server;
  TestClient client(server.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.call("GET", "/stream").body, "onetwo");
}

TEST(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Echo server;
  TestClient client(server.port());
  std::string all;
  for (int i = 0; i < 40; ++i) {
    const std::string body(static_cast<size_t>(i) * 37, static_cast<char>('a' + i % 26));
    all += "POST /" + std::string(i % 9 ? "p" : "slow") + std::to_string(0) +
           " HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  // In uneven pieces, so that requests are cut anywhere.
  for (size_t at = 0, step = 1; at < all.size(); at += step, step = step * 7 % 1009 + 1)
    client.send_raw(std::string_view(all).substr(at, step));
  for (int i = 0; i < 40; ++i) {
    const auto response = client.response();
    EXPECT_EQ(response.body,
              "POST /" + std::string(i % 9 ? "p" : "slow") + "0  " +
                  std::string(static_cast<size_t>(i) * 37, static_cast<char>('a' + i % 26)));
  }
}

TEST(HttpServerTest, ExpectContinue) {
  Echo server;
  TestClient client(server.port());
  client.send_raw("POST /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.head().status, 100);
  client.send_raw("body");
  EXPECT_EQ(client.response().body, "POST /e  body");
  TestClient odd(server.port());
  odd.send_raw("POST /e HTTP/1.1\r\nExpect: a miracle\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(odd.response().status, 417);
}

TEST(HttpServerTest, HeadHasNoBody) {
  Echo server;
  TestClient client(server.port());
  const auto head = client.call("HEAD", "/h");
  EXPECT_EQ(head.headers.at("content-length"), "9");  // "HEAD /h  "
  EXPECT_EQ(client.call("GET", "/h").body, "GET /h  ");
}

TEST(HttpServerTest, ChunkedBodiesInTinyPieces) {
  Echo server;
  TestClient client(server.port());
  std::string bytes = "POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20000; ++i) bytes += "1\r\nx\r\n";
  client.send_raw(bytes + "0\r\n\r\n");
  EXPECT_EQ(client.response().body, "POST /c  " + std::string(20000, 'x'));
}

TEST(HttpServerTest, LimitsHaveTheirStatus) {
  HttpConfig config = local();
  config.max_body = 1000;
  config.max_header = 2000;
  Echo server(config);
  EXPECT_EQ(TestClient(server.port()).call("POST", "/", std::string(1001, 'x')).status, 413);
  EXPECT_EQ(TestClient(server.port()).call("POST", "/", std::string(3 << 20, 'x')).status, 413);
  EXPECT_EQ(TestClient(server.port()).call("POST", "/", std::string(1000, 'x')).status, 200);
  EXPECT_EQ(TestClient(server.port())
                .call("GET", "/", "", "A: " + std::string(2000, 'x') + "\r\n")
                .status,
            431);
  TestClient chunked(server.port());
  chunked.send_raw("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 1001; ++i) chunked.send_raw("1\r\nx\r\n");
  EXPECT_EQ(chunked.response().status, 413);
  TestClient endless(server.port());
  endless.send_raw("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                   std::string(100000, 'e'));
  EXPECT_EQ(endless.response().status, 400);
}

TEST(HttpServerTest, NonsenseIs400) {
  Echo server;
  for (const char* bytes :
       {"\r\n\r\nnonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "GET /%zz HTTP/1.1\r\n\r\n", "GET /%00 HTTP/1.1\r\n\r\n", "GET /%0d%0aX:y HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n",
        "GET / HTTP/1.1\r\nX-Request-Id: a\x1b[31mb\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}) {
    SCOPED_TRACE(bytes);
    TestClient client(server.port());
    client.send_raw(bytes);
    client.send_raw("\r\n\r\n");
    EXPECT_EQ(client.response().status, 400);
  }
  EXPECT_EQ(TestClient(server.port()).call("POST", "/", "x", "Content-Encoding: gzip\r\n").status,
            415);
  EXPECT_EQ(TestClient(server.port()).call("GET", "http://other/abs").body, "GET /abs  ");
}

TEST(HttpServerTest, SlowHeadersAndBodiesTimeOut) {
  HttpConfig config = local();
  config.header_seconds = config.body_seconds = 0.3;
  Echo server(config);
  TestClient header(server.port()), body(server.port());
  body.send_raw("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n");
  const auto begin = std::chrono::steady_clock::now();
  header.send_raw("GET / HTTP/1.1\r\n");
  // A byte now and then does not move the deadline.
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    header.send_raw("x");
    body.send_raw("x");
  }
  EXPECT_EQ(header.response().status, 408);
  EXPECT_EQ(body.response().status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(HttpServerTest, IdleConnectionsEnd) {
  HttpConfig config = local();
  config.idle_seconds = 0.1;
  Echo server(config);
  TestClient client(server.port());
  EXPECT_EQ(client.call("GET", "/").status, 200);
  EXPECT_FALSE(client.fill());
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
}

TEST(HttpServerTest, RequestIdsAreEchoedIfSane) {
  Echo server;
  TestClient client(server.port());
  EXPECT_EQ(client.call("GET", "/", "", "X-Request-Id: abc-1\r\n").headers.at("x-request-id"),
            "abc-1");
  for (const std::string& bad : {std::string("a\"b"), std::string(200, 'a'), std::string("a b")})
    EXPECT_EQ(client.call("GET", "/", "", "X-Request-Id: " + bad + "\r\n")
                  .headers.at("x-request-id")
                  .size(),
              32u);
}

TEST(HttpServerTest, UnansweredAndThrowingHandlersGive500) {
  Echo server;
  TestClient client(server.port());
  EXPECT_EQ(client.call("GET", "/drop").status, 500);
  const auto thrown = client.call("GET", "/throw");
  EXPECT_EQ(thrown.status, 500);
  EXPECT_EQ(thrown.body.find("secret"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
}

TEST(HttpServerTest, ConnectionsAreCapped) {
  HttpConfig config = local();
  config.max_connections = 2;
  Echo server(config);
  TestClient a(server.port()), b(server.port());
  EXPECT_EQ(a.call("GET", "/").status, 200);
  EXPECT_EQ(b.call("GET", "/").status, 200);
  TestClient c(server.port());
  EXPECT_EQ(c.call("GET", "/").status, 503);
  a.hang_up();
  c.hang_up();
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 1; }));
  EXPECT_EQ(TestClient(server.port()).call("GET", "/").status, 200);
}

TEST(HttpServerTest, APortInUseNamesTheWayOut) {
  Echo server;
  HttpConfig config = local();
  config.port = server.port();
  try {
    HttpServer second(config, echo, plain);
    FAIL() << "two servers on one port";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(std::to_string(server.port())));
    EXPECT_THAT(e.what(), testing::HasSubstr("--port"));
  }
}

TEST(HttpServerTest, HangingUpAtEveryByteLeavesNothingBehind) {
  Echo server;
  const std::string request = "POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";
  for (size_t bytes = 0; bytes <= request.size(); ++bytes) {
    TestClient client(server.port());
    client.send_raw(request.substr(0, bytes));
  }
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
  EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
  EXPECT_EQ(TestClient(server.port()).call("GET", "/").status, 200);
}

TEST(HttpServerTest, StoppingWithOpenConnectionsEnds) {
  auto server = std::make_unique<Echo>();
  TestClient a(server->port()), b(server->port());
  EXPECT_EQ(a.call("GET", "/").status, 200);
  b.send("GET", "/slow");
  server.reset();
  EXPECT_FALSE(a.fill());
}

}  // namespace
}  // namespace skiff
