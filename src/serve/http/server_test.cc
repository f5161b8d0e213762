// The HTTP layer alone, over TCP and TLS: framing, keep-alive, pipelining, clients that leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "base/load_error.h"
#include "serve/http/date.h"
#include "serve/http/server_testing.h"

namespace skiff::http {
namespace {

using Over = TestClient::Over;

class HttpServerTest : public testing::TestWithParam<Over> {
 protected:
  HttpConfig local() { return local_http_config(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Over, HttpServerTest, testing::Values(Over::kTcp, Over::kTls),
                         [](const auto& info) { return info.param == Over::kTls ? "Tls" : "Tcp"; });

TEST_P(HttpServerTest, KeepsConnectionsAlive) {
  Echo server(local());
  TestClient client = server.client();
  for (int i = 0; i < 50; ++i) {
    const auto response = client.call("POST", "/a%20b?q=1", "body " + std::to_string(i));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /a b q=1 body " + std::to_string(i));
    EXPECT_EQ(response.headers.at("connection"), "keep-alive");
  }
  EXPECT_EQ(server.server.connections(), 1);
}

TEST_P(HttpServerTest, ClosesWhenAskedTo) {
  Echo server(local());
  TestClient client = server.client();
  EXPECT_EQ(client.call("GET", "/x", "", "Connection: close\r\n").headers.at("connection"),
            "close");
  EXPECT_FALSE(client.fill());
  TestClient old = server.client();
  old.send_raw("GET /stream HTTP/1.0\r\n\r\n");
  const auto response = old.response();
  EXPECT_EQ(response.body, "onetwo");
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
}

TEST_P(HttpServerTest, StreamsAreChunked) {
  Echo server(local());
  TestClient client = server.client();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.call("GET", "/stream").body, "onetwo");
}

TEST_P(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Echo server(local());
  TestClient client = server.client();
  std::string all;
  for (int i = 0; i < 40; ++i) {
    const std::string body(static_cast<size_t>(i) * 37, static_cast<char>('a' + i % 26));
    all += "POST /" + std::string(i % 9 ? "p" : "slow") + std::to_string(0) +
           " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  }
  // Sends uneven pieces, so that requests are cut anywhere.
  for (size_t at = 0, step = 1; at < all.size(); at += step, step = step * 7 % 1009 + 1)
    client.send_raw(std::string_view(all).substr(at, step));
  for (int i = 0; i < 40; ++i) {
    const auto response = client.response();
    EXPECT_EQ(response.body,
              "POST /" + std::string(i % 9 ? "p" : "slow") + "0  " +
                  std::string(static_cast<size_t>(i) * 37, static_cast<char>('a' + i % 26)));
  }
}

TEST_P(HttpServerTest, ExpectContinue) {
  Echo server(local());
  TestClient client = server.client();
  client.send_raw(
      "POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.head().status, 100);
  client.send_raw("body");
  EXPECT_EQ(client.response().body, "POST /e  body");
  TestClient odd = server.client();
  odd.send_raw("POST /e HTTP/1.1\r\nHost: h\r\nExpect: a miracle\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(odd.response().status, 417);
}

TEST_P(HttpServerTest, OldClientsExpectNothing) {
  Echo server(local());
  for (const char* expectation : {"100-continue", "a miracle"}) {
    TestClient client = server.client();
    client.send_raw(std::string("POST /e HTTP/1.0\r\nExpect: ") + expectation +
                    "\r\nContent-Length: 4\r\n\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    client.send_raw("body");
    const auto response = client.response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /e  body");
  }
}

TEST_P(HttpServerTest, RepliesBearTheirDate) {
  Echo server(local());
  TestClient client = server.client();
  for (const char* path : {"/", "/stream", "/%00"})
    EXPECT_THAT(client.call("GET", path).headers["date"],
                testing::MatchesRegex("[A-Z][a-z][a-z], [0-9][0-9] [A-Z][a-z][a-z] 20[0-9][0-9] "
                                      "[0-9][0-9]:[0-9][0-9]:[0-9][0-9] GMT"));
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(1709210096), "Thu, 29 Feb 2024 12:34:56 GMT");
}

TEST_P(HttpServerTest, HeadHasNoBody) {
  Echo server(local());
  TestClient client = server.client();
  const auto head = client.call("HEAD", "/h");
  EXPECT_EQ(head.headers.at("content-length"), "9");  // "HEAD /h  "
  EXPECT_EQ(client.call("GET", "/h").body, "GET /h  ");
}

TEST_P(HttpServerTest, IdleConnectionsEnd) {
  HttpConfig config = local();
  config.idle_seconds = 0.5;  // a busy machine may take a while from connecting to the request
  Echo server(config);
  TestClient client = server.client();
  EXPECT_EQ(client.call("GET", "/").status, 200);
  EXPECT_FALSE(client.fill());
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
}

TEST_P(HttpServerTest, RequestIdsAreEchoedIfSane) {
  Echo server(local());
  TestClient client = server.client();
  EXPECT_EQ(client.call("GET", "/", "", "X-Request-Id: abc-1\r\n").headers.at("x-request-id"),
            "abc-1");
  for (const std::string& bad : {std::string("a\"b"), std::string(200, 'a'), std::string("a b")})
    EXPECT_EQ(client.call("GET", "/", "", "X-Request-Id: " + bad + "\r\n")
                  .headers.at("x-request-id")
                  .size(),
              32u);
}

TEST_P(HttpServerTest, UnansweredAndThrowingHandlersGive500) {
  Echo server(local());
  TestClient client = server.client();
  EXPECT_EQ(client.call("GET", "/drop").status, 500);
  const auto thrown = client.call("GET", "/throw");
  EXPECT_EQ(thrown.status, 500);
  EXPECT_EQ(thrown.body.find("secret"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
}

TEST_P(HttpServerTest, TheLongestSilentConnectionMakesRoom) {
  HttpConfig config = local();
  config.max_connections = 3;
  Echo server(config);
  // The server notes the end of a reply after the client has it; then the connection is idle.
  const auto only_busy_is_open = [&] {
    return eventually([&] { return server.server.open_requests() == 1; });
  };
  TestClient busy = server.client();
  busy.send_raw("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n");
  ASSERT_TRUE(only_busy_is_open());
  TestClient first = server.client(), second = server.client();
  EXPECT_EQ(second.call("GET", "/").status, 200);
  ASSERT_TRUE(only_busy_is_open());
  EXPECT_EQ(first.call("GET", "/").status, 200);
  ASSERT_TRUE(only_busy_is_open());  // now `second` has been idle longer
  first.send_raw("GET / HT");        // a part of a head is not a request
  TestClient third = server.client();
  EXPECT_EQ(third.call("GET", "/").status, 200);
  EXPECT_FALSE(second.fill());
  ASSERT_TRUE(only_busy_is_open());
  EXPECT_EQ(server.client().call("GET", "/").status, 200);
  EXPECT_FALSE(first.fill());
  busy.send_raw("x");
  EXPECT_EQ(busy.response().status, 200);
  EXPECT_LE(server.server.connections(), 3);
}

// Every connection has a request under way: a probe is still answered.
TEST_P(HttpServerTest, PlacesAreKeptForProbes) {
  HttpConfig config = local();
  config.max_connections = 2;
  config.max_probe_connections = 2;
  HttpServer server(config,
                    {.handler = echo, .failure = plain, .lane = [](const HttpRequest& request) {
                       return request.path == "/live" ? HttpLane::kIo : HttpLane::kWork;
                     }});
  server.start();
  const auto client = [&] { return TestClient(server.port(), GetParam()); };
  TestClient a = client(), b = client();
  for (TestClient* upload : {&a, &b})
    upload->send_raw(
        "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
        "Content-Length: 1\r\n\r\n");
  for (TestClient* upload : {&a, &b}) EXPECT_EQ(upload->head().status, 100);
  TestClient silent = client(), silent_too = client();
  // A probe's connection has its place until it is closed, which may come after its reply.
  const auto probe = [&](auto... words) {
    auto reply = client().call(words...);
    EXPECT_TRUE(eventually([&] { return server.connections() <= 3; }));
    return reply;
  };
  for (int i = 0; i < 5; ++i) {
    const auto live = probe("GET", "/live");
    EXPECT_EQ(live.status, 200);
    EXPECT_EQ(live.headers.at("connection"), "close");
    EXPECT_EQ(probe("GET", "/").status, 503);
    EXPECT_EQ(probe("POST", "/", "body").status, 503);
  }
  EXPECT_FALSE(silent.fill());
  EXPECT_LE(server.connections(), 4);
  for (TestClient* upload : {&a, &b}) {
    upload->send_raw("x");
    EXPECT_EQ(upload->response().status, 200);
  }
  EXPECT_EQ(client().call("GET", "/").status, 200);
}

TEST_P(HttpServerTest, APortInUseNamesTheWayOut) {
  Echo server(local());
  HttpConfig config = local();
  config.port = server.port();
  try {
    HttpServer second(config, {.handler = echo, .failure = plain});
    FAIL() << "two servers on one port";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(std::to_string(server.port())));
    EXPECT_THAT(e.what(), testing::HasSubstr("--port"));
  }
}

TEST_P(HttpServerTest, RequestsTellTheirPort) {
  HttpConfig config = local();
  config.more_ports = {0, 0};
  Echo server(config, [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    reply->send({.status = 200, .body = std::to_string(request.door)});
  });
  const std::vector<uint16_t> ports = server.server.ports();
  ASSERT_EQ(ports.size(), 3);
  EXPECT_EQ(ports[0], server.port());
  for (size_t door : {2, 0, 1, 2})
    EXPECT_EQ(TestClient(ports[door], GetParam()).call("GET", "/").body, std::to_string(door));
}

TEST_P(HttpServerTest, EveryPortInUseIsNamed) {
  Echo server(local());
  HttpConfig config = local();
  config.more_ports = {server.port()};
  try {
    HttpServer second(config, {.handler = echo, .failure = plain});
    FAIL() << "two servers on one port";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(std::to_string(server.port())));
  }
}

TEST_P(HttpServerTest, HangingUpAtEveryByteLeavesNothingBehind) {
  Echo server(local());
  const std::string request = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
  for (size_t bytes = 0; bytes <= request.size(); ++bytes) {
    TestClient client = server.client();
    client.send_raw(request.substr(0, bytes));
  }
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
  EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
  EXPECT_EQ(server.client().call("GET", "/").status, 200);
}

TEST_P(HttpServerTest, AClosingClientIsNoticedWhileItsReplyRuns) {
  std::mutex mutex;
  std::shared_ptr<HttpReply> held;
  std::atomic<int> closed{0};
  Echo server(local(), [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    reply->begin_stream(plain(200, "x"));
    reply->on_close([&] { ++closed; });
    std::lock_guard lock(mutex);
    held = std::move(reply);
  });
  for (const bool polite : {false, true}) {
    TestClient client = server.client();
    client.send("GET", "/");
    EXPECT_EQ(client.head().status, 200);
    EXPECT_EQ(client.chunk(), "x");
    if (polite) client.half_close();
    if (!polite) client.hang_up();
    EXPECT_TRUE(eventually([&] { return closed == (polite ? 2 : 1); }));
    EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
    std::lock_guard lock(mutex);
    EXPECT_FALSE(held->write("y"));
  }
}

// So many bytes are pipelined behind the request that the server does not read the end of file.
TEST_P(HttpServerTest, PipelinedBytesDoNotHideALeaver) {
  std::mutex mutex;
  std::shared_ptr<HttpReply> held;
  std::atomic<bool> began{false}, closed{false};
  Echo server(local(), [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    reply->on_close([&] { closed = true; });
    std::lock_guard lock(mutex);
    held = std::move(reply);
    began = true;
  });
  TestClient client = server.client();
  std::string ahead = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  while (ahead.size() < 100000) ahead += "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
  client.send_raw(ahead);
  ASSERT_TRUE(eventually([&] { return began.load(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(closed);
  client.hang_up();
  EXPECT_TRUE(eventually([&] { return closed.load(); }));
  EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
  std::lock_guard lock(mutex);
  held.reset();
}

// A hook that throws, for want of memory for instance, ends one connection and not the server.
TEST_P(HttpServerTest, AThrowOnAnIoThreadEndsOneConnection) {
  std::atomic<bool> armed{false};
  const auto bomb = [&armed](const HttpRequest& request, const char* path) {
    if (armed && request.path == path) throw std::bad_alloc();
  };
  HttpServer server(local(), {.handler =
                                  [&](const HttpRequest& request, auto reply) {
                                    bomb(request, "/handler");
                                    reply->on_close([] { throw std::bad_alloc(); });
                                    if (request.path == "/hold") {
                                      reply->begin_stream(plain(200, "x"));
                                      while (reply->write("y"))
                                        std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                    }
                                    reply->send(plain(200, "fine"));
                                  },
                              .failure = plain,
                              .early =
                                  [&](const HttpRequest& request) {
                                    bomb(request, "/early");
                                    return std::optional<HttpResponse>();
                                  },
                              .refuse =
                                  [&](const HttpRequest& request) {
                                    bomb(request, "/refuse");
                                    return std::optional<HttpResponse>();
                                  },
                              .headers =
                                  [&](const HttpRequest& request) {
                                    bomb(request, "/headers");
                                    return HttpHeaders();
                                  },
                              .record =
                                  [&](const HttpRecord& record) {
                                    if (armed && record.target == "/record") throw std::bad_alloc();
                                  }});
  server.start();
  const auto client = [&] { return TestClient(server.port(), GetParam()); };
  for (int round = 0; round < 3; ++round) {
    armed = true;
    for (const char* path : {"/early", "/refuse", "/headers"}) {
      TestClient victim = client();
      victim.send("POST", path, "body");
      EXPECT_FALSE(victim.fill()) << path;
    }
    EXPECT_EQ(client().call("POST", "/handler", "body").status, 500);
    EXPECT_EQ(client().call("POST", "/record", "body").status, 200);
    TestClient holder = client();
    holder.send("GET", "/hold");
    EXPECT_EQ(holder.head().status, 200);
    holder.hang_up();
    EXPECT_TRUE(eventually([&] { return server.open_requests() == 0; }));
    EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
    armed = false;
    EXPECT_EQ(client().call("POST", "/early", "body").status, 200);
  }
}

TEST_P(HttpServerTest, AReaderThatStopsReadingIsDropped) {  // item 42: slow read
  HttpConfig config = local();
  config.max_unsent = 1 << 20;
  std::atomic<bool> dropped{false};
  Echo server(config, [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    reply->begin_stream(plain(200, ""));
    // The kernel's buffers take a small part of it.
    for (int i = 0; i < 1000 && !dropped; ++i) dropped = !reply->write(std::string(100000, 'x'));
    reply->end_stream();
  });
  TestClient client = server.client();
  client.send("GET", "/");
  EXPECT_TRUE(eventually([&] { return dropped.load(); }));
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
}

// A client that closes its connection behind the last byte does so while the server may not yet
// know that it was written.
TEST_P(HttpServerTest, WhoLeavesWithTheLastByteHadTheWholeReply) {
  constexpr int kClients = 300;
  std::atomic<int> whole = 0, cut = 0;
  HttpServer server(local(), {.handler = echo, .failure = plain, .record = [&](const auto& record) {
                                ++(record.complete ? whole : cut);
                              }});
  server.start();
  for (int i = 0; i < kClients; ++i) TestClient(server.port(), GetParam()).call("GET", "/stream");
  EXPECT_TRUE(eventually([&] { return whole + cut == kClients; }));
  EXPECT_EQ(cut, 0);
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST_P(HttpServerTest, EveryReplyLeavesARecord) {
  std::mutex mutex;
  std::vector<HttpRecord> records;
  HttpServer server(local(), {.handler = echo, .failure = plain, .record = [&](const auto& record) {
                                std::lock_guard lock(mutex);
                                records.push_back(record);
                              }});
  server.start();
  const auto count = [&] {
    std::lock_guard lock(mutex);
    return records.size();
  };
  TestClient client(server.port(), GetParam());
  client.call("POST", "/a%0Ab?secret=1", "body", "X-Request-Id: id-1\r\n");
  EXPECT_TRUE(eventually([&] { return count() == 1; }));  // 400 closed the connection
  TestClient second(server.port(), GetParam());
  second.call("GET", "/stream", "", "X-Request-Id: id-2\r\n");
  second.send_raw("nonsense\r\n");
  second.response();
  ASSERT_TRUE(eventually([&] { return count() == 3; }));
  EXPECT_EQ(records[0].target, "/a%0Ab");
  EXPECT_EQ(records[0].status, 400);
  EXPECT_EQ(records[1].method, "GET");
  EXPECT_EQ(records[1].request_id, "id-2");
  EXPECT_EQ(records[1].status, 200);
  EXPECT_TRUE(records[1].complete);
  EXPECT_THAT(records[1].client, testing::StartsWith("127.0.0.1:"));
  EXPECT_GT(records[1].sent, 100u);
  EXPECT_LT(records[1].seconds, 60);
  EXPECT_EQ(records[2].target, "-");
  EXPECT_EQ(records[2].status, 400);
}

TEST_P(HttpServerTest, AnUploadUnderWayIsToldOfTheEnd) {
  Echo server(local());
  TestClient upload = server.client(), idle = server.client();
  EXPECT_EQ(idle.call("GET", "/").status, 200);
  ASSERT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
  upload.send_raw("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n" +
                  std::string(100000, 'x'));
  ASSERT_TRUE(eventually([&] { return server.server.open_requests() == 1; }));
  server.server.begin_drain();
  const auto response = upload.response();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_EQ(server.server.open_requests(), 1);  // a reset must not destroy the answer
  upload.hang_up();
  EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 0; }));
  EXPECT_EQ(idle.call("GET", "/").status, 200);
}

// An upload is refused before its body has arrived, whether the drain began before or after its
// head.
TEST_P(HttpServerTest, AnUploadThatBeginsAfterTheEndIsTold) {
  Echo server(local());
  TestClient idle = server.client(), upload = server.client();
  EXPECT_EQ(idle.call("GET", "/").status, 200);
  EXPECT_EQ(upload.call("GET", "/").status, 200);
  server.server.begin_drain();
  upload.send_raw("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n" +
                  std::string(100000, 'x'));
  EXPECT_EQ(upload.response().status, 503);
}

// A stream whose parts are written when the ones before have been taken.
struct PacedStream : std::enable_shared_from_this<PacedStream> {
  PacedStream(std::shared_ptr<HttpReply> to, int parts) : reply(std::move(to)), left(parts) {}
  void next() {
    if (left-- == 0) return reply->end_stream();
    reply->write(std::string(1 << 20, 'x'));
    reply->when_sent([self = shared_from_this()] { self->next(); });
  }
  const std::shared_ptr<HttpReply> reply;
  int left;
};

TEST_P(HttpServerTest, APacedStreamExceedsWhatMayBeUnsent) {
  constexpr int kParts = 24;
  HttpConfig config = local();
  config.max_unsent = 3 << 19;  // one part fits, two do not
  std::weak_ptr<PacedStream> last;
  std::mutex mutex;
  Echo server(config, [&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    EXPECT_EQ(request.client.substr(0, 10), "127.0.0.1:");
    const auto stream = std::make_shared<PacedStream>(reply, kParts);
    {
      std::lock_guard lock(mutex);
      last = stream;
    }
    reply->begin_stream(plain(200, ""));
    stream->next();
  });
  EXPECT_EQ(server.client().call("GET", "/").body.size(), size_t{kParts} << 20);
  TestClient leaves = server.client();  // what waits for it is dropped
  leaves.send("GET", "/");
  leaves.head();
  leaves.hang_up();
  EXPECT_TRUE(eventually([&] {
    std::lock_guard lock(mutex);
    return last.expired() && server.server.open_requests() == 0;
  }));
}

TEST_P(HttpServerTest, StoppingWithOpenConnectionsEnds) {
  auto server = std::make_unique<Echo>(local());
  TestClient a = server->client(), b = server->client();
  EXPECT_EQ(a.call("GET", "/").status, 200);
  b.send("GET", "/slow");
  server.reset();
  EXPECT_FALSE(a.fill());
}

}  // namespace
}  // namespace skiff::http
