// Access control, start-up and shutdown of a server.
#include "serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/load_error.h"
#include "serve/http/api_keys.h"
#include "serve/http/host_list.h"
#include "serve/http/server_testing.h"
#include "serve/service/engine_testing.h"

namespace skiff::serve {
namespace {

ServerConfig echo_server() {
  ServerConfig config;
  config.http = http::local_http_config();
  config.model_names = {"echo"};
  config.access_log = false;
  return config;
}

ServerConfig locked() {
  ServerConfig config = echo_server();
  config.api_keys = {"first-key", "second-key"};
  return config;
}

struct RunningServer {
  explicit RunningServer(ServerConfig config) : server(std::move(config), echo.service) {
    server.start();
  }
  http::ClientResponse call(const std::string& method, const std::string& path,
                            const std::string& headers = "", const std::string& body = "") const {
    return http::TestClient(server.port()).call(method, path, body, headers);
  }
  http::ClientResponse raw(const std::string& bytes) const {
    http::TestClient client(server.port());
    client.send_raw(bytes);
    return client.response(bytes.starts_with("HEAD"));
  }
  service::EchoService echo;
  Server server;
};

// Renders until `over` is set, at most 15 s, so that a test that fails does not hang.
struct SlowTemplate : service::PlainTemplate {
  Result<std::string> render(const text::Conversation& conversation) const override {
    busy = true;
    for (int i = 0; i < 15000 && !over; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return service::PlainTemplate::render(conversation);
  }
  mutable std::atomic<bool> busy{false}, over{false};
};

struct SlowService {
  explicit SlowService(service::ServiceConfig config = service::echo_config())
      : engine(events),
        service(std::move(config), engine, events, std::make_shared<service::ByteTokenizer>(),
                chat) {}
  std::shared_ptr<SlowTemplate> chat = std::make_shared<SlowTemplate>();
  std::shared_ptr<service::EventQueue> events = std::make_shared<service::EventQueue>();
  service::EchoEngine engine;
  service::EngineService service;
};

const char kChat[] = R"({"messages":[{"role":"user","content":"x"}]})";

void expect_401(const http::ClientResponse& response) {
  EXPECT_EQ(response.status, 401);
  ASSERT_TRUE(response.headers.contains("www-authenticate"));
  EXPECT_EQ(response.headers.at("www-authenticate"), "Bearer");
  if (response.body.empty()) return;  // HEAD
  const Json error = response.json()["error"];
  EXPECT_EQ(error["type"], "authentication_error");
  EXPECT_EQ(error["code"], "invalid_api_key");
  EXPECT_TRUE(error["param"].is_null());
  EXPECT_THAT(error["message"].get<std::string>(), testing::Not(testing::HasSubstr("wrong")));
}

const char kGood[] = "Authorization: Bearer second-key\r\n";

TEST(ServerTest, Item54EveryRouteWantsAKey) {
  RunningServer server(locked());
  const std::pair<const char*, const char*> routes[] = {{"POST", "/v1/chat/completions"},
                                                        {"POST", "/v1/completions"},
                                                        {"GET", "/v1/models"},
                                                        {"GET", "/v1/models/echo"},
                                                        {"GET", "/metrics"},
                                                        {"GET", "/load"},
                                                        {"GET", "/version"}};
  for (const auto& [method, path] : routes) {
    SCOPED_TRACE(path);
    expect_401(server.call(method, path));
    expect_401(server.call(method, path, "Authorization: Bearer wrong\r\n"));
    EXPECT_NE(server.call(method, path, kGood).status, 401);
    EXPECT_NE(server.call(method, path, "x-api-key: first-key\r\n").status, 401);
  }
}

TEST(ServerTest, Item54NoSpellingGetsAroundTheKey) {
  RunningServer server(locked());
  for (const char* path :
       {"//v1/models", "/v1//models", "/v1/../v1/models", "/live/../v1/models", "/health/",
        "/v1%2fmodels", "/%76%31/models", "/V1/models", "/v1/models?x=/health", "/v1/models/",
        "/v1/models;/live", "/v1/models%20", "http://localhost/v1/models", "/nope", "*"}) {
    SCOPED_TRACE(path);
    for (const char* method : {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "FOO"}) {
      SCOPED_TRACE(method);
      expect_401(server.call(method, path));
    }
    expect_401(server.raw("GET " + std::string(path) + " HTTP/1.0\r\n\r\n"));
  }
  // An open route is not open for other methods.
  expect_401(server.call("POST", "/health"));
  expect_401(server.call("OPTIONS", "/health", "Origin: http://a\r\n"));
}

TEST(ServerTest, ProbesAreOpen) {
  RunningServer server(locked());
  for (const char* path : {"/live", "/health", "/ping", "http://localhost/health", "/%68ealth"}) {
    EXPECT_EQ(server.call("GET", path).status, 200) << path;
    EXPECT_EQ(server.call("HEAD", path).status, 200) << path;
  }
}

// Probes are answered while the only worker is busy, so that orchestrators do not restart the
// server.
TEST(ServerTest, ProbesDoNotQueueBehindRequests) {
  http::HttpConfig config = http::local_http_config();
  config.worker_threads = 1;
  std::atomic<bool> busy{false}, over{false};
  http::HttpServer server(
      config,
      {.handler =
           [&](const http::HttpRequest& request, const std::shared_ptr<http::HttpReply>& reply) {
             if (request.path == "/work") {
               busy = true;
               while (!over) std::this_thread::yield();
             }
             reply->send(http::plain(200, request.path));
           },
       .failure = http::plain,
       .lane =
           [](const http::HttpRequest& request) {
             return request.path == "/live" ? http::HttpLane::kIo : http::HttpLane::kWork;
           }});
  server.start();
  http::TestClient worker(server.port());
  worker.send_raw("GET /work HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(http::eventually([&] { return busy.load(); }));
  EXPECT_EQ(http::TestClient(server.port()).call("GET", "/live").status, 200);
  over = true;
  EXPECT_EQ(worker.response().body, "/work");
}

TEST(ServerTest, KeysAreReadAsClientsSendThem) {
  RunningServer server(locked());
  for (const char* headers :
       {"Authorization: Bearer first-key\r\n", "authorization: bearer second-key\r\n",
        "Authorization: BEARER   first-key  \r\n", "X-API-Key: first-key\r\n",
        "Authorization: Basic eDp5\r\nx-api-key: second-key\r\n"})
    EXPECT_EQ(server.call("GET", "/v1/models", headers).status, 200) << headers;
  for (const char* headers :
       {"Authorization: first-key\r\n", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n",
        "Authorization: Basic first-key\r\n", "Authorization: Bearer first-ke\r\n",
        "Authorization: Bearer first-keyx\r\n", "Authorization: Bearer First-Key\r\n",
        "x-api-key: first-key,second-key\r\n", "Authorization: Bearer first-key second-key\r\n"})
    expect_401(server.call("GET", "/v1/models", headers));
}

TEST(ServerTest, StrangersAreRefusedBeforeTheirBodyIsRead) {
  RunningServer server(locked());
  http::TestClient client(server.server.port());
  client.send_raw(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Length: 1000000\r\n\r\n");
  expect_401(client.response());
  EXPECT_FALSE(client.fill());
}

TEST(ServerTest, KeyFilesAreChecked) {
  http::TestFolder folder;
  const std::string path = folder.path + "/keys";
  const auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return http::read_key_file(path);
  };
  const auto good = read("# ours\n\n  one \r\ntwo\n# end");
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, (std::vector<std::string>{"one", "two"}));
  for (const std::string bad : {"", "# none\n", "good\nsecret key\n", "caf\xc3\xa9\n"}) {
    const auto refused = read(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_THAT(refused.error().what, testing::HasSubstr(path));
    EXPECT_THAT(refused.error().what, testing::Not(testing::HasSubstr("secret")));
  }
  EXPECT_FALSE(http::read_key_file(folder.path + "/none"));
}

TEST(ServerTest, ReloadReplacesKeysOrNothing) {
  RunningServer server(locked());
  EXPECT_FALSE(server.server.reload({}));
  EXPECT_EQ(server.call("GET", "/v1/models", kGood).status, 200);
  EXPECT_TRUE(server.server.reload({"third-key"}));
  expect_401(server.call("GET", "/v1/models", kGood));
  EXPECT_EQ(server.call("GET", "/v1/models", "x-api-key: third-key\r\n").status, 200);
}

TEST(ServerTest, Item56HostsOfALoopbackServer) {
  RunningServer server(echo_server());
  const auto with_host = [&](const std::string& host) {
    return server.raw("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* host : {"localhost", "LOCALHOST.", "localhost:8000", "127.0.0.1:1", "127.1.2.3",
                           "[::1]", "[::1]:80"})
    EXPECT_EQ(with_host(host).status, 200) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                           "[::2]", "evil@localhost", "10.0.0.1", "x", "[::1"}) {
    const auto response = with_host(host);
    EXPECT_EQ(response.status, 403) << host;
    EXPECT_EQ(response.json()["error"]["code"], "host_not_allowed");
  }
  EXPECT_EQ(
      server.raw("GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").status,
      403);
  EXPECT_EQ(server.raw("GET /v1/models HTTP/1.0\r\n\r\n").status, 200);
  EXPECT_EQ(server.raw("GET /health HTTP/1.1\r\nHost: 10.0.0.1:8000\r\n\r\n").status, 200);

  const auto at = [](const std::string& authority) {
    return http::HttpRequest{.headers = {{"host", authority}}};
  };
  EXPECT_FALSE(http::HostList("0.0.0.0", {}).refuse(at("evil.example")));
  EXPECT_FALSE(http::HostList("127.0.0.1", {"*"}).refuse(at("evil.example")));
  EXPECT_TRUE(http::HostList("0.0.0.0", {"llm.example"}).refuse(at("evil.example")));
  EXPECT_FALSE(http::HostList("0.0.0.0", {"llm.example"}).refuse(at("LLM.example:8000")));
  EXPECT_FALSE(http::HostList("::1", {"llm.example"}).refuse(at("[::1]:8000")));
}

TEST(ServerTest, Item56CrossOriginIsOffByDefault) {
  RunningServer server(echo_server());
  const auto response = server.call("GET", "/v1/models", "Origin: https://evil.example\r\n");
  EXPECT_FALSE(response.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(server
                .call("OPTIONS", "/v1/models",
                      "Origin: https://a\r\nAccess-Control-Request-Method: GET\r\n")
                .status,
            403);
}

const char kPrompt[] = R"({"prompt":"ab","max_tokens":1})";

TEST(ServerTest, PagesOfOtherOriginsAreRefused) {
  ServerConfig config = echo_server();
  config.cors_origins = {"https://chat.example"};
  RunningServer server(config);
  const auto post = [&](const std::string& headers) {
    return server.call("POST", "/v1/completions", "Content-Type: application/json\r\n" + headers,
                       kPrompt);
  };
  // test_client.h calls the server "localhost".
  for (const char* headers :
       {"", "Origin: http://localhost\r\n", "Origin: https://LOCALHOST:443\r\n",
        "Origin: https://chat.example\r\n",
        "Origin: https://chat.example\r\nSec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: none\r\n",
        "Origin: https://proxy.example\r\nSec-Fetch-Site: same-origin\r\n"})
    EXPECT_EQ(post(headers).status, 200) << headers;
  for (const char* headers :
       {"Origin: https://evil.example\r\n", "Origin: null\r\n", "Origin: http://localhost:3000\r\n",
        "Origin: https://localhost.evil.example\r\n", "Origin: file://\r\n",
        "Origin: localhost\r\n", "Origin: http://\r\n", "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"}) {
    const auto response = post(headers);
    EXPECT_EQ(response.status, 403) << headers;
    const Json error = response.json()["error"];
    EXPECT_EQ(error["code"], "origin_not_allowed");
    EXPECT_THAT(error["message"].get<std::string>(), testing::HasSubstr("--allowed-origins"));
  }
  EXPECT_THAT(post("Origin: https://evil.example\r\n").body,
              testing::HasSubstr("https://evil.example"));
  EXPECT_EQ(server.echo.engine.seen().size(), 7u);
  // Following a link does no harm, and probes answer anybody.
  EXPECT_EQ(server.call("GET", "/v1/models", "Sec-Fetch-Site: cross-site\r\n").status, 200);
  EXPECT_EQ(server.call("GET", "/v1/models", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(server.call("GET", "/health", "Origin: https://evil.example\r\n").status, 200);
}

TEST(ServerTest, AnOriginThatMayDoAnything) {
  ServerConfig config = echo_server();
  config.cors_origins = {"*"};
  RunningServer server(config);
  for (const char* headers :
       {"Origin: https://any.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"})
    EXPECT_EQ(server.call("POST", "/v1/completions", headers, kPrompt).status, 200) << headers;
}

// A request that a page may send without preflight never causes work.
TEST(ServerTest, PostsAreJson) {
  RunningServer server(echo_server());
  const auto status = [&](const std::string& type, const char* path = "/v1/completions") {
    return server.call("POST", path, "Content-Type: " + type + "\r\n", kPrompt).status;
  };
  for (const char* type : {"application/json", "application/json; charset=utf-8",
                           "Application/JSON;charset=UTF-8", "application/vnd.api+json"})
    EXPECT_EQ(status(type), 200) << type;
  for (const char* type : {"text/plain", "text/plain;charset=UTF-8; application/json",
                           "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                           "application/jsonp", "text/json", "json"}) {
    EXPECT_EQ(status(type), 415) << type;
    EXPECT_EQ(status(type, "/tokenize"), 415) << type;
  }
  EXPECT_EQ(server.call("POST", "/v1/completions", "", kPrompt).status, 200);
  const auto refused = server.call("POST", "/v1/completions",
                                   "Content-Type: application/x-www-form-urlencoded\r\n", kPrompt);
  EXPECT_THAT(refused.body, testing::HasSubstr("x-www-form-urlencoded"));
  EXPECT_THAT(refused.body, testing::HasSubstr("-H 'Content-Type: application/json'"));
  EXPECT_EQ(server.echo.engine.seen().size(), 5u);
}

TEST(ServerTest, ProbesTakeNoBody) {
  RunningServer server(locked());
  for (const auto& [method, path] : {std::pair<const char*, const char*>{"GET", "/live"},
                                     {"GET", "/health"},
                                     {"GET", "/ping"},
                                     {"POST", "/ping"},
                                     {"HEAD", "/health"}}) {
    SCOPED_TRACE(path);
    for (const char* framing :
         {"Content-Length: 1\r\n", "Content-Length: 16777216\r\n", "Transfer-Encoding: chunked\r\n",
          "Expect: 100-continue\r\nContent-Length: 5\r\n"}) {
      http::TestClient client(server.server.port());
      client.send_raw(std::string(method) + " " + path + " HTTP/1.1\r\nHost: h\r\n" + framing +
                      "\r\n");
      const auto response = client.response(method == std::string("HEAD"));
      EXPECT_EQ(response.status, 413) << framing;  // and no 100
      EXPECT_EQ(response.headers.at("connection"), "close");
    }
    EXPECT_EQ(server.call(method, path, "Content-Length: 0\r\n").status, 200);
  }
}

// While all workers are busy, cheap requests are still answered.
TEST(ServerTest, ReadersDoNotQueueBehindWork) {
  ServerConfig config = echo_server();
  config.http.worker_threads = 1;
  SlowService slow;
  Server server(config, slow.service);
  server.start();
  http::TestClient worker(server.port());
  worker.send("POST", "/v1/chat/completions", kChat);
  ASSERT_TRUE(http::eventually([&] { return slow.chat->busy.load(); }));
  const auto begin = std::chrono::steady_clock::now();
  for (const char* path : {"/v1/models", "/v1/models/echo", "/metrics", "/load", "/version",
                           "/config-info", "/health"})
    EXPECT_EQ(http::TestClient(server.port()).call("GET", path).status, 200) << path;
  for (const char* path : {"/nope", "/v1/models/none"})
    EXPECT_EQ(http::TestClient(server.port()).call("GET", path).status, 404) << path;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  slow.chat->over = true;
  EXPECT_EQ(worker.response().status, 200);
}

// When the queue is exactly full no template is rendered, least of all on an I/O thread.
TEST(ServerTest, AFullQueueRefusesBeforeTheTextIsRead) {
  service::ServiceConfig bounds = service::echo_config();
  bounds.admission.waiting_tokens = 20;
  SlowService slow(bounds);
  slow.engine.hold = true;
  Server server(echo_server(), slow.service);
  server.start();
  http::TestClient first(server.port());
  first.send("POST", "/v1/completions", Json{{"prompt", std::string(19, 'a')}}.dump());  // plus <s>
  ASSERT_TRUE(http::eventually([&] { return slow.engine.running() == 1; }));
  std::vector<std::unique_ptr<http::TestClient>> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.push_back(std::make_unique<http::TestClient>(server.port()));
    crowd.back()->send("POST", "/v1/chat/completions", kChat);
  }
  EXPECT_EQ(http::TestClient(server.port()).call("GET", "/live").status, 200);
  for (auto& client : crowd) EXPECT_EQ(client->response().status, 429);
  EXPECT_FALSE(slow.chat->busy);
  slow.chat->over = true;
  slow.engine.hold = false;
  EXPECT_EQ(first.response().status, 200);
}

TEST(ServerTest, CrossOriginForSome) {
  ServerConfig config = locked();
  config.cors_origins = {"https://chat.example"};
  config.cors_credentials = true;
  RunningServer server(config);
  const std::string asks =
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization, content-type\r\n";
  const auto yes =
      server.call("OPTIONS", "/v1/chat/completions", "Origin: https://chat.example\r\n" + asks);
  EXPECT_EQ(yes.status, 204);
  EXPECT_EQ(yes.headers.at("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(yes.headers.at("access-control-allow-headers"), "authorization, content-type");
  EXPECT_EQ(yes.headers.at("access-control-allow-credentials"), "true");
  EXPECT_THAT(yes.headers.at("access-control-allow-methods"), testing::HasSubstr("POST"));
  EXPECT_EQ(yes.headers.at("vary"), "Origin");
  const auto no =
      server.call("OPTIONS", "/v1/chat/completions", "Origin: https://evil.example\r\n" + asks);
  EXPECT_EQ(no.status, 403);
  EXPECT_FALSE(no.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(no.headers.at("vary"), "Origin");
  // The page can read errors, too, also those made without a handler.
  for (const char* path : {"/v1/models", "/%00"})
    EXPECT_EQ(server.call("GET", path, "Origin: https://chat.example\r\n")
                  .headers.at("access-control-allow-origin"),
              "https://chat.example");
}

TEST(ServerTest, Item56CredentialsNeverGoWithAnyOrigin) {
  ServerConfig config = echo_server();
  config.cors_origins = {"*"};
  {
    RunningServer server(config);
    const auto response = server.call("GET", "/v1/models", "Origin: https://a\r\n");
    EXPECT_EQ(response.headers.at("access-control-allow-origin"), "*");
    EXPECT_FALSE(response.headers.contains("access-control-allow-credentials"));
  }
  config.cors_credentials = true;
  EXPECT_THROW(Server{config}, LoadError);
  config.cors_origins = {"https://a/path"};
  EXPECT_THROW(Server{config}, LoadError);
}

TEST(ServerTest, LoadingIsLiveAndNotReady) {
  Server server(locked());
  server.start();
  http::TestClient client(server.port());
  EXPECT_EQ(client.call("GET", "/live").status, 200);
  server.set_loaded(0.42);
  const auto health = client.call("GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, testing::HasSubstr("loading, 42% done"));
  EXPECT_TRUE(health.headers.contains("retry-after"));
  expect_401(client.call("GET", "/v1/models"));
  EXPECT_EQ(client.call("GET", "/v1/models", "", kGood).status, 503);
  EXPECT_EQ(client.call("POST", "/v1/completions", "{}", kGood).status, 503);
  // Answering before the body was read closes the connection.
  service::EchoService echo;
  server.open(echo.service, {{"answer", 42}});
  http::TestClient later(server.port());
  EXPECT_EQ(later.call("GET", "/health").status, 200);
  EXPECT_EQ(later.call("POST", "/v1/completions", R"({"prompt":"ab"})", kGood).status, 200);
  server.stop();
}

TEST(ServerTest, OpeningUnderLoadNeverGivesAWrongAnswer) {
  auto server = std::make_unique<Server>(echo_server());
  server->start();
  std::atomic<bool> done{false}, bad{false};
  std::vector<std::thread> crowd;
  crowd.reserve(4);
  for (int i = 0; i < 4; ++i)
    crowd.emplace_back([&] {
      http::TestClient client(server->port());
      while (!done) {
        const int status = client.call("GET", "/v1/models").status;
        if (status != 200 && status != 503) bad = true;
      }
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  service::EchoService echo;
  server->open(echo.service);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(http::TestClient(server->port()).call("GET", "/v1/models").status, 200);
  done = true;
  for (auto& client : crowd) client.join();
  EXPECT_FALSE(bad);
  server.reset();
}

TEST(ServerTest, DrainingAnswersReadersAndRefusesWork) {
  RunningServer server(echo_server());
  server.echo.engine.hold = true;
  http::TestClient client(server.server.port());
  client.send("POST", "/v1/completions", R"({"prompt":"ab","stream":true})");
  ASSERT_TRUE(http::eventually([&] { return server.echo.engine.running() == 1; }));
  std::thread drain([&] { EXPECT_TRUE(server.server.drain(20)); });
  EXPECT_TRUE(http::eventually([&] { return server.call("GET", "/ping").status == 503; }));
  EXPECT_EQ(server.call("GET", "/live").status, 200);
  EXPECT_EQ(server.call("GET", "/metrics").status, 200);
  const auto refused = server.call("POST", "/v1/completions", "", R"({"prompt":"ab"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  server.echo.engine.hold = false;
  EXPECT_EQ(http::sse_events(client.response().body).back(), "[DONE]");
  drain.join();
}

// The blocks of a prefill server, say, which other servers still fetch.
TEST(ServerTest, DrainingWaitsForOthersWithinItsTime) {
  RunningServer server(echo_server());
  std::atomic<bool> done{false};
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    done = true;
  });
  EXPECT_TRUE(server.server.drain(20, [&] { return done.load(); }));
  EXPECT_TRUE(done);
  other.join();
  EXPECT_FALSE(server.server.drain(0.1, [] { return false; }));
}

// Two ports for replicas, and one with the metrics of the second.
struct PinnedServer {
  PinnedServer() : echo(apart()), server(config(), echo.service) { server.start(); }
  static service::ServiceConfig apart() {
    service::ServiceConfig config = service::echo_config();
    config.replicas_apart = 2;
    return config;
  }
  static ServerConfig config() {
    ServerConfig config = echo_server();
    config.http.more_ports = {0, 0};
    config.port_uses = {{.replica = 0}, {.replica = 1}, {.replica = 1, .observes = true}};
    config.admin_keys = {"boss"};
    return config;
  }
  http::ClientResponse call(size_t door, const std::string& method, const std::string& path,
                            const std::string& body = "") const {
    return http::TestClient(server.ports().at(door)).call(method, path, body, "");
  }
  service::EchoService echo;
  Server server;
};

TEST(ServerTest, APortIsItsReplicasForEveryProtocol) {
  const PinnedServer server;
  const std::pair<const char*, const char*> requests[] = {
      {"/v1/completions", R"({"prompt":"x"})"},
      {"/v1/chat/completions", kChat},
      {"/v1/messages",
       R"({"model":"echo","max_tokens":5,"messages":[{"role":"user","content":"x"}]})"},
      {"/v1/responses", R"({"model":"echo","input":"x"})"},
      {"/api/generate", R"({"model":"echo","prompt":"x"})"},
      {"/v1/chat/completions", R"({"req_id":"r","text":"x"})"}};
  for (const auto& [path, body] : requests)
    for (const int door : {0, 1}) {
      EXPECT_EQ(server.call(static_cast<size_t>(door), "POST", path, body).status, 200) << path;
      EXPECT_EQ(server.echo.engine.seen().back().replica, door) << path << body;
    }
}

TEST(ServerTest, ServersOfOnePortChooseNoReplica) {
  const RunningServer server(echo_server());
  EXPECT_EQ(server.call("POST", "/v1/completions", "", R"({"prompt":"x"})").status, 200);
  EXPECT_FALSE(server.echo.engine.seen().back().replica);
}

TEST(ServerTest, MetricsOfAPortAreOfItsRequests) {
  const PinnedServer server;
  for (const size_t door : {1, 1, 0})
    EXPECT_EQ(server.call(door, "POST", "/v1/completions", R"({"prompt":"x"})").status, 200);
  const std::string of_one = "fastdeploy:requests_number{model_name=\"echo\"} 1\n";
  const std::string of_two = "fastdeploy:requests_number{model_name=\"echo\"} 2\n";
  EXPECT_THAT(server.call(0, "GET", "/metrics").body, testing::HasSubstr(of_one));
  EXPECT_THAT(server.call(1, "GET", "/metrics").body, testing::HasSubstr(of_two));
  EXPECT_THAT(server.call(2, "GET", "/metrics").body, testing::HasSubstr(of_two));
}

TEST(ServerTest, AnObservingPortDoesNothingElse) {
  const PinnedServer server;
  for (const char* path : {"/metrics", "/health", "/live", "/config-info", "/version"})
    EXPECT_EQ(server.call(2, "GET", path).status, 200) << path;
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/pause", "/tokenize"})
    EXPECT_EQ(server.call(2, "POST", path, kChat).status, 404) << path;
  EXPECT_EQ(server.call(2, "GET", "/v1/models").status, 404);
  EXPECT_EQ(server.call(2, "GET", "/").status, 404);
}

}  // namespace
}  // namespace skiff::serve
