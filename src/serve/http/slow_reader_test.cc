// Clients that read their replies slowly, or not at all.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "serve/http/server_testing.h"

namespace skiff::http {
namespace {

using Over = TestClient::Over;

// More than the buffers of both sockets hold.
constexpr size_t kLong = 48u << 20;

class SlowReaders : public testing::TestWithParam<Over> {
 protected:
  HttpConfig config(double write_seconds) {
    HttpConfig config = local_http_config(GetParam());
    config.write_seconds = write_seconds;
    return config;
  }
  static void long_reply(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    reply->send(plain(200, std::string(kLong, 'x')));
  }
};

INSTANTIATE_TEST_SUITE_P(Over, SlowReaders, testing::Values(Over::kTcp, Over::kTls),
                         [](const auto& info) { return info.param == Over::kTls ? "Tls" : "Tcp"; });

// The whole reply takes longer than a client may take nothing for.
TEST_P(SlowReaders, KeepTheirReplyWhileTheyRead) {
  Echo server(config(2), long_reply);
  TestClient client = server.client();
  client.send("GET", "/");
  EXPECT_EQ(client.head().status, 200);
  constexpr size_t kPieces = 24;
  size_t got = 0;
  for (size_t i = 0; i < kPieces; ++i) {
    got += client.take(kLong / kPieces).size();
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }
  EXPECT_EQ(got, kLong);
}

TEST_P(SlowReaders, LoseItIfTheyReadNothing) {
  Echo server(config(0.1), long_reply);
  TestClient client = server.client();
  client.send("GET", "/");
  EXPECT_TRUE(eventually([&] { return server.server.open_requests() == 1; }));
  EXPECT_TRUE(eventually([&] { return server.server.connections() == 0; }));
}

}  // namespace
}  // namespace skiff::http
