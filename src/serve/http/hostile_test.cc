// Requests that only attackers or broken clients send. Each refusal is an OpenAI error with its
// four keys, is quick, and uses no more memory than the limits allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "serve/http/api_error.h"
#include "serve/http/server_testing.h"

namespace skiff::http {
namespace {

using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Hostile {
  explicit Hostile(HttpConfig config = local_http_config())
      : server(std::move(config),
               {.handler = echo, .failure = [](int status, const std::string& why) {
                  return error_response(api_error(status, why));
                }}) {
    server.start();
  }
  TestClient client() const { return TestClient(server.port()); }
  // Returns the status of the answer to `bytes`. The connection must be closed after it.
  int refusal(std::string_view bytes) const {
    TestClient sender = client();
    sender.send_raw(bytes);
    const auto response = sender.response();
    const Json error = response.json()["error"];
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key));
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(response.headers.contains("x-request-id"));
    EXPECT_FALSE(sender.fill());
    return response.status;
  }
  bool lives() const { return client().call("GET", "/").status == 200; }
  HttpServer server;
};

std::string post(const std::string& headers, const std::string& body = "") {
  return "POST / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

TEST(HttpHostileTest, GrammarIs400) {
  Hostile server;
  const std::string nul("GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n", 35);
  for (const std::string& bytes : std::vector<std::string>{
           "\r\n\r\nnonsense\r\n\r\n",
           "GET\r\n",
           "GET /\r\n",  // HTTP/0.9
           "GET / HTTP/9.9\r\n",
           "GET / HTTP/2.0\r\n",
           "GET / HTTP/1.10\r\n",
           "GET / http/1.1\r\n",
           "GET  / HTTP/1.1\r\n",
           "GET / HTTP/1.1 \r\n",
           "GET / HTTP/1.1\n",
           "G\xc3\x89T / HTTP/1.1\r\n",
           "GET /\xff HTTP/1.1\r\n",
           "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
           "GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n",
           "GET /%0d%0aX:y HTTP/1.1\r\nHost: h\r\n\r\n",
           "GET relative HTTP/1.1\r\nHost: h\r\n\r\n",
           "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
           "GET http:///x HTTP/1.1\r\nHost: h\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\nbad header\r\n",
           "GET / HTTP/1.1\r\nHost : h\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\n: empty\r\n",
           "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n",
           "GET / HTTP/1.1\r\nHost: h\nA: b\r\n",
           "GET / HTTP/1.1\r\nHost: h\rA: b\r\n",
           "GET / HTTP/1.1\r\nX-Request-Id: a\x1b[31mb\r\n",
           nul,
           "\x16\x03\x01\x02\x01\x01",
       }) {
    SCOPED_TRACE(testing::PrintToString(bytes));
    EXPECT_EQ(server.refusal(bytes), 400);
  }
  EXPECT_TRUE(server.lives());
}

TEST(HttpHostileTest, Item54SmugglingIs400AndCloses) {
  Hostile server;
  const std::string inner = "GET /inner HTTP/1.1\r\nHost: h\r\n\r\n";
  for (const std::string& bytes : std::vector<std::string>{
           post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + inner),
           post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n" + inner),
           post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd" + inner),
           post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc" + inner),
           post("Content-Length: 3, 3\r\n", "abc" + inner),
           post("Content-Length: +3\r\n", "abc" + inner),
           post("Content-Length: 0x3\r\n", "abc" + inner),
           post("Content-Length: -1\r\n", inner),
           post("Content-Length: 99999999999999999999\r\n"),
           post("Transfer-Encoding: gzip\r\n", inner),
           post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n" + inner),
           post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n" + inner),
           post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n" + inner),
           post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n" + inner),
           "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
       }) {
    SCOPED_TRACE(testing::PrintToString(bytes));
    EXPECT_EQ(server.refusal(bytes), 400);
  }
  EXPECT_TRUE(server.lives());
}

TEST(HttpHostileTest, MethodsThatActOnOtherHostsAre405) {
  Hostile server;
  EXPECT_EQ(server.refusal("TRACE / HTTP/1.1\r\nHost: h\r\n\r\n"), 405);
  EXPECT_EQ(server.refusal("CONNECT /h:1 HTTP/1.1\r\nHost: h\r\n\r\n"), 405);
  EXPECT_EQ(server.refusal("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
}

TEST(HttpHostileTest, Item30HeadersAreBounded) {
  HttpConfig config = local_http_config();
  config.max_header = 2000;
  Hostile server(config);
  EXPECT_EQ(server.refusal(post("A: " + std::string(2000, 'x'))), 431);
  EXPECT_EQ(server.refusal(std::string(5000, 'x')), 431);
  EXPECT_EQ(server.refusal("GET /" + std::string(5000, 'x')), 431);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "a:b\r\n";
  EXPECT_EQ(server.refusal(post(many)), 431);
  EXPECT_EQ(server.client().call("GET", "/", "", many.substr(10)).status, 200);
}

TEST(HttpHostileTest, Item36BodiesAreBounded) {
  HttpConfig config = local_http_config();
  config.max_body = 1000;
  Hostile server(config);
  EXPECT_EQ(server.client().call("POST", "/", std::string(1000, 'x')).status, 200);
  for (const size_t size : {size_t{1001}, size_t{3} << 20}) {
    const auto response = server.client().call("POST", "/", std::string(size, 'x'));
    EXPECT_EQ(response.status, 413);
    EXPECT_EQ(response.json()["error"]["code"], "content_too_large");
  }
  EXPECT_EQ(server.refusal(post("Content-Length: 9223372036854775807\r\n")), 413);
  EXPECT_EQ(server.refusal(post("Expect: 100-continue\r\nContent-Length: 2000\r\n")), 413);
  std::string chunks;
  for (int i = 0; i < 1001; ++i) chunks += "1\r\nx\r\n";
  EXPECT_EQ(server.refusal(post("Transfer-Encoding: chunked\r\n", chunks)), 413);
  EXPECT_EQ(server.refusal(post("Transfer-Encoding: chunked\r\n", "fffffffffffffff\r\n")), 413);
}

TEST(HttpHostileTest, ChunkNonsenseIs400) {
  Hostile server;
  for (const std::string& chunks : std::vector<std::string>{
           "zz\r\n", "-1\r\n", "0x1\r\nx\r\n", " 1\r\nx\r\n", "11111111111111111\r\n", "\r\n",
           "1\r\nxy\r\n", "1\r\nx\n", "1 \r\nx\r\n", "1\r\nx\r\n0\r\n\n", "1;a\0\r\n"s,
           "1;" + std::string(100000, 'e'), "1\nx\n0\n\n",
           "0\r\n" + std::string(100000, 't') + ": x\r\n"}) {
    SCOPED_TRACE(testing::PrintToString(chunks.substr(0, 50)));
    EXPECT_EQ(server.refusal(post("Transfer-Encoding: chunked\r\n", chunks)), 400);
  }
  // Extensions and trailers that are short each and long in sum.
  std::string wasteful;
  for (int i = 0; i < 100; ++i) wasteful += "1;" + std::string(1000, 'e') + "\r\nx\r\n";
  EXPECT_EQ(server.refusal(post("Transfer-Encoding: chunked\r\n", wasteful)), 400);
}

TEST(HttpHostileTest, TrailersAreNoHeaders) {
  HttpServer server(local_http_config(),
                    {.handler =
                         [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
                           reply->send(plain(200, std::string(request.header("authorization"))));
                         },
                     .failure = plain});
  server.start();
  TestClient client(server.port());
  client.send_raw(post("Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n",
                       "1\r\nx\r\n0\r\nAuthorization: Bearer late\r\n\r\n"));
  const auto response = client.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "");
}

TEST(HttpHostileTest, Item37AMillionChunksOfOneByte) {
  Hostile server;
  const auto cpu = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * usage.ru_utime.tv_usec;
  };
  std::string chunks;
  for (int i = 0; i < 1000000; ++i) chunks += "1\r\nx\r\n";
  const double before = cpu();
  TestClient client = server.client();
  client.send_raw(post("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n"));
  EXPECT_EQ(client.response().body.size(), 1000000u + 8);
  // Linear parsing takes some 100 ns for each chunk, more under sanitizers; quadratic parsing would
  // take minutes.
  EXPECT_LT(cpu() - before, 10);
}

TEST(HttpHostileTest, Item39EncodedBodiesAre415) {
  Hostile server;
  for (const char* coding : {"gzip", "GZIP", "br", "deflate", "gzip, identity"})
    EXPECT_EQ(
        server.refusal(post(fmt::format("Content-Encoding: {}\r\nContent-Length: 3\r\n", coding),
                            "\x1f\x8b\x08")),
        415);
  EXPECT_EQ(server.client().call("POST", "/", "x", "Content-Encoding: identity\r\n").status, 200);
  EXPECT_EQ(server.refusal(post("Expect: a miracle\r\nContent-Length: 4\r\n")), 417);
}

TEST(HttpHostileTest, Item41Http2IsRefusedAndOthersDoNotWait) {
  Hostile server;
  TestClient honest = server.client();
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  std::string frames;
  for (int i = 0; i < 1000; ++i)  // HEADERS and RST_STREAM, repeated
    frames += std::string("\0\0\1\1\4\0\0\0\1\x82\0\0\4\3\0\0\0\0\1\0\0\0\0", 23);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(server.refusal(preface + frames), 400);
    const auto begin = Clock::now();
    EXPECT_EQ(honest.call("GET", "/").status, 200);
    EXPECT_LT(seconds_since(begin), 2);
  }
}

TEST(HttpHostileTest, Item42SlowHeadersAndBodiesTimeOut) {
  HttpConfig config = local_http_config();
  config.header_seconds = config.body_seconds = 0.3;
  Hostile server(config);
  TestClient header = server.client(), body = server.client();
  body.send_raw(post("Content-Length: 100\r\n"));
  const auto begin = Clock::now();
  header.send_raw("GET / HTTP/1.1\r\n");
  // Single bytes that trickle in do not extend the deadline.
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    header.send_raw("x");
    body.send_raw("x");
  }
  EXPECT_EQ(header.response().status, 408);
  EXPECT_EQ(body.response().status, 408);
  EXPECT_LT(seconds_since(begin), 5);
}

TEST(HttpHostileTest, Item42ABodyMustKeepItsRate) {
  HttpConfig config = local_http_config();
  config.body_grace = 0.2;
  config.body_rate = 1000;
  Hostile server(config);
  TestClient slow = server.client(), quick = server.client();
  slow.send_raw(post("Content-Length: 10000\r\n"));
  // What comes first earns four seconds, so that a busy machine does not make this one slow.
  quick.send_raw(post("Content-Length: 10000\r\n") + std::string(4000, 'x'));
  const auto begin = Clock::now();
  // 2 bytes every 10 ms are 200 B/s; 200 are 20 kB/s, enough after the grace period.
  for (int i = 0; i < 30; ++i) {
    slow.send_raw(std::string(2, 'x'));
    quick.send_raw(std::string(200, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(slow.response().status, 408);
  EXPECT_EQ(quick.response().status, 200);
  EXPECT_LT(seconds_since(begin), 5);
}

TEST(HttpHostileTest, ManyConnectionsBeyondTheLimitAreDropped) {
  HttpConfig config = local_http_config();
  config.max_connections = 3;
  Hostile server(config);
  std::vector<std::unique_ptr<TestClient>> crowd;
  crowd.reserve(30);
  for (int i = 0; i < 30; ++i) crowd.push_back(std::make_unique<TestClient>(server.server.port()));
  EXPECT_TRUE(eventually([&] { return server.server.connections() <= 6; }));
  crowd.clear();
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
  EXPECT_TRUE(server.lives());
}

TEST(HttpHostileTest, BodiesWithoutUseAreSmall) {
  Hostile server;
  for (const char* method : {"GET", "HEAD", "DELETE", "OPTIONS"}) {
    const std::string head = std::string(method) + " / HTTP/1.1\r\nHost: h\r\nContent-Length: ";
    TestClient small = server.client();
    small.send_raw(head + "4096\r\n\r\n" + std::string(4096, 'x'));
    EXPECT_EQ(small.response(method == std::string("HEAD")).status, 200) << method;
    TestClient large = server.client();
    large.send_raw(head + "4097\r\n\r\n");
    EXPECT_EQ(large.response(method == std::string("HEAD")).status, 413) << method;
  }
}

// Requests whose clients left while they waited for a busy worker.
TEST(HttpHostileTest, BodiesOfThoseWhoLeftAreFreed) {
  HttpConfig config = local_http_config();
  config.worker_threads = 1;
  config.max_bodies = 3 << 20;
  config.large_body = config.max_bodies;
  std::atomic<bool> over{false};
  std::atomic<int> handled{0};
  HttpServer server(config,
                    {.handler =
                         [&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
                           ++handled;
                           while (request.path == "/wait" && !over)
                             std::this_thread::sleep_for(std::chrono::milliseconds(1));
                           reply->send(plain(200, "done"));
                         },
                     .failure = plain});
  server.start();
  TestClient waiting(server.port());
  waiting.send("POST", "/wait", "x");
  ASSERT_TRUE(eventually([&] { return handled == 1; }));
  for (int i = 0; i < 10; ++i) {
    TestClient client(server.port());
    client.send("POST", "/", std::string(1 << 20, 'x'));
    EXPECT_TRUE(eventually([&] { return server.open_requests() == 2; })) << i;
    client.hang_up();
    EXPECT_TRUE(eventually([&] { return server.open_requests() == 1; })) << i;
  }
  // If the ten were still counted, this one would be refused.
  TestClient honest(server.port());
  honest.send("POST", "/", std::string(1 << 20, 'x'));
  EXPECT_TRUE(eventually([&] { return server.open_requests() == 2; }));
  over = true;
  EXPECT_EQ(honest.response().status, 200);
  EXPECT_EQ(waiting.response().status, 200);
  EXPECT_EQ(handled, 2);
}

// A body counts as long as a handler keeps it, even if its client has left.
TEST(HttpHostileTest, ABodyCountsAsLongAsItLives) {
  HttpConfig config = local_http_config();
  config.max_bodies = 3 << 20;
  std::mutex mutex;
  std::vector<HttpRequest> kept;
  HttpServer server(config, {.handler =
                                 [&](HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
                                   std::lock_guard lock(mutex);
                                   kept.push_back(std::move(request));
                                   reply->send(plain(200, "kept"));
                                 },
                             .failure = plain});
  server.start();
  const auto upload = [&] {
    return TestClient(server.port()).call("POST", "/", std::string(1 << 20, 'x')).status;
  };
  EXPECT_EQ(upload(), 200);
  int refused = 0;
  for (int i = 0; i < 4; ++i) refused += upload() == 503;
  EXPECT_GE(refused, 2);
  EXPECT_EQ(TestClient(server.port()).call("GET", "/").status, 200);  // the request has no body
  {
    std::lock_guard lock(mutex);
    kept.clear();
  }
  EXPECT_EQ(upload(), 200);
}

// The undefined-behaviour sanitizer reads an object's type through a pipe, and without free
// descriptors it reports broken objects.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kDescriptorsCanRunOut = false;
#else
constexpr bool kDescriptorsCanRunOut = true;
#endif

// When descriptors run out the log gets one line, not ten each second, and the server recovers
// afterwards.
TEST(HttpHostileTest, NoDescriptorLeftIsSaidOnce) {
  if (!kDescriptorsCanRunOut) GTEST_SKIP() << "this sanitizer needs descriptors";
  Hostile server;
  EXPECT_TRUE(server.lives());
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  rlimit before{}, tight{};
  getrlimit(RLIMIT_NOFILE, &before);
  tight = before;
  const int lowest_free = dup(fd);
  close(lowest_free);
  tight.rlim_cur = static_cast<rlim_t>(lowest_free);
  testing::internal::CaptureStdout();  // the log of a test goes there
  setrlimit(RLIMIT_NOFILE, &tight);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  setrlimit(RLIMIT_NOFILE, &before);
  spdlog::default_logger()->flush();
  const std::string log = testing::internal::GetCapturedStdout();
  close(fd);
  EXPECT_EQ(connected, 0) << "it waits in the queue of the socket";
  int lines = 0;
  for (size_t at = 0; (at = log.find("cannot accept a connection", at)) != log.npos; ++at) ++lines;
  EXPECT_EQ(lines, 1) << log;
  EXPECT_THAT(log, testing::HasSubstr("ulimit -n"));
  EXPECT_TRUE(server.lives());
}

TEST(HttpHostileTest, TheAbsoluteFormNamesTheSamePath) {
  Hostile server;
  EXPECT_EQ(server.client().call("GET", "http://other/abs?q").body, "GET /abs q ");
  EXPECT_EQ(server.client().call("GET", "http://other?q").body, "GET / q ");
  EXPECT_EQ(server.client().call("GET", "HTTPS://other").body, "GET /  ");
}

// Each large body keeps its handler busy; small requests are answered all the same, and the large
// ones later.
TEST(HttpHostileTest, LargeBodiesLeaveTheWorkersToSmallOnes) {
  HttpConfig config = local_http_config();
  config.large_body = 1000;
  std::atomic<bool> over = false;
  HttpServer server(config,
                    {.handler =
                         [&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
                           while (request.body.size() >= 1000 && !over)
                             std::this_thread::sleep_for(std::chrono::milliseconds(1));
                           reply->send(plain(200, "done"));
                         },
                     .failure = plain});
  server.start();
  std::list<TestClient> large;
  for (int i = 0; i < 4; ++i) {
    large.emplace_back(server.port());
    large.back().send("POST", "/", std::string(1000, 'x'));
  }
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(TestClient(server.port()).call("POST", "/", std::string(999, 'x')).status, 200);
  over = true;
  for (TestClient& client : large) EXPECT_EQ(client.response().status, 200);
}

}  // namespace
}  // namespace skiff::http
