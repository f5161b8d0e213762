// What only TLS has: files, reload, handshakes that never come, close_notify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/load_error.h"
#include "serve/http/server_testing.h"
#include "serve/http/tls.h"

namespace skiff::http {
namespace {

using Over = TestClient::Over;

struct Files : TestFolder {
  std::string certificate = path + "/c.pem", key = path + "/k.pem";
  explicit Files(const std::string& name = "first") { make_certificate(certificate, key, name); }
};

HttpConfig with(const Files& files) {
  HttpConfig config = local_http_config();
  config.tls_certificate = files.certificate;
  config.tls_key = files.key;
  return config;
}

std::string why(const std::string& certificate, const std::string& key) {
  const auto loaded = load_tls(certificate, key);
  return loaded ? "" : loaded.error().what;
}

TEST(HttpTlsTest, FilesAreChecked) {
  Files files, other;
  EXPECT_EQ(why(files.certificate, files.key), "");
  EXPECT_THAT(why("/none", files.key), testing::HasSubstr("--ssl-certfile /none: cannot be read"));
  EXPECT_THAT(why(files.certificate, "/none"),
              testing::HasSubstr("--ssl-keyfile /none: cannot be read"));
  EXPECT_THAT(why(files.certificate, other.key), testing::HasSubstr("--ssl-keyfile " + other.key));
  EXPECT_THAT(why(files.key, files.key), testing::HasSubstr("--ssl-certfile " + files.key));
  std::ofstream(files.certificate) << "rubbish";
  EXPECT_THAT(why(files.certificate, files.key), testing::HasSubstr("--ssl-certfile"));
  make_certificate(files.certificate, files.key, "old", /*days=*/-1);
  EXPECT_EQ(why(files.certificate, files.key), "");
}

TEST(HttpTlsTest, OneFileIsNotEnough) {
  Files files;
  HttpConfig config = with(files);
  config.tls_key = "";
  EXPECT_THROW(Echo{config}, LoadError);
}

TEST(HttpTlsTest, ReloadServesNewConnections) {
  Files files;
  Echo server(with(files));
  TestClient before = server.client();
  EXPECT_EQ(before.certificate_name(), "first");
  std::ofstream(files.key) << "rubbish";
  EXPECT_FALSE(server.server.reload_tls());
  EXPECT_EQ(server.client().certificate_name(), "first");
  make_certificate(files.certificate, files.key, "second");
  EXPECT_TRUE(server.server.reload_tls());
  EXPECT_EQ(server.client().certificate_name(), "second");
  EXPECT_EQ(before.call("GET", "/").status, 200);
}

TEST(HttpTlsTest, PlainHttpIsClosedAtOnce) {
  Echo server(local_http_config(Over::kTls));
  TestClient plain_client(server.port(), Over::kTcp);
  const auto begin = std::chrono::steady_clock::now();
  plain_client.send("GET", "/");
  while (plain_client.fill()) {  // the server sends at most an alert
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
}

TEST(HttpTlsTest, HandshakesHaveADeadline) {
  HttpConfig config = local_http_config(Over::kTls);
  config.header_seconds = 0.2;
  Echo server(config);
  TestClient silent(server.port(), Over::kTcp);
  silent.send_raw("\x16\x03\x01");
  EXPECT_FALSE(silent.fill());
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
}

TEST(HttpTlsTest, TheEndIsAnnounced) {
  HttpConfig config = local_http_config(Over::kTls);
  config.idle_seconds = 1;  // for three handshakes on a busy machine
  Echo server(config);
  TestClient asked = server.client(), idle = server.client(), refused = server.client();
  asked.call("GET", "/", "", "Connection: close\r\n");
  idle.call("GET", "/");
  refused.send_raw("nonsense\r\n" + std::string(300000, 'x'));
  EXPECT_EQ(refused.response().status, 400);
  for (TestClient* client : {&asked, &idle, &refused}) {
    EXPECT_FALSE(client->fill());
    EXPECT_TRUE(client->got_close_notify());
  }
}

}  // namespace
}  // namespace skiff::http
