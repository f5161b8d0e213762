#include "serve/http/held.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/http/server_testing.h"

namespace skiff::http {
namespace {

using std::chrono::seconds;
constexpr int64_t kMiB = 1 << 20;

TEST(HeldReplies, TheLongestWaitingMakeRoom) {
  HeldReplies held(10 * kMiB);
  const HeldReplies::Clock::time_point start{};
  std::vector<int> dropped;
  const auto hold = [&](int name, int64_t bytes, int at) {
    return held.hold(
        bytes, [&dropped, name] { dropped.push_back(name); }, start + seconds(at));
  };
  EXPECT_TRUE(hold(1, 4 * kMiB, 0));
  EXPECT_TRUE(hold(2, 4 * kMiB, 1));
  EXPECT_FALSE(hold(3, 4 * kMiB, 9)) << "nobody has waited ten seconds yet";
  EXPECT_EQ(held.bytes(), 8 * kMiB);
  EXPECT_TRUE(hold(4, 4 * kMiB, 10));
  EXPECT_THAT(dropped, testing::ElementsAre(1));
  EXPECT_FALSE(hold(5, 11 * kMiB, 100)) << "never fits, so nobody is dropped for it";
  EXPECT_THAT(dropped, testing::ElementsAre(1));
  EXPECT_TRUE(hold(6, 10 * kMiB, 100));
  EXPECT_THAT(dropped, testing::ElementsAre(1, 2, 4));
  EXPECT_EQ(held.bytes(), 10 * kMiB);
}

TEST(HeldReplies, SmallOnesAlwaysPass) {
  HeldReplies held(kMiB);
  const auto all = held.hold(kMiB, [] {});
  ASSERT_TRUE(all);
  EXPECT_TRUE(held.hold(HeldReplies::kSmall, [] {}));
  EXPECT_FALSE(held.hold(HeldReplies::kSmall + 1, [] {}));
  held.release(*all);
  held.release(*all);
  EXPECT_EQ(held.bytes(), 0);
}

// What is sent behind a reply is no reply, and holds nothing.
TEST(HeldReplies, ASecondReplyIsNotHeld) {
  HttpConfig config = local_http_config();
  config.max_held = 8 * kMiB;
  Echo server(config, [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    if (request.path == "/large") return reply->send(plain(200, std::string(7 * kMiB, 'x')));
    for (int i = 0; i < 2; ++i) reply->send(plain(200, std::string(2 * kMiB, 'x')));
  });
  for (int i = 0; i < 4; ++i) {
    TestClient client(server.port());
    EXPECT_EQ(client.call("GET", "/twice").status, 200) << i;
  }
  EXPECT_TRUE(eventually([&] {
    TestClient client(server.port());
    return client.call("GET", "/large").status == 200;
  }));
}

// A hundred clients request large replies and read none of them.
TEST(HeldReplies, UnreadRepliesHaveABoundTogether) {
  HttpConfig config = local_http_config();
  config.max_held = 64 * kMiB;
  Echo server(config, [](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    reply->send(plain(200, std::string(16 * kMiB, 'x')));
  });
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    clients.back()->send("GET", "/large");
  }
  int served = 0, refused = 0;
  for (auto& client : clients) {
    const int status = client->head().status;
    served += status == 200;
    refused += status == 503;
  }
  EXPECT_EQ(served, 4);
  EXPECT_EQ(refused, 8);
  // A reply that was read or dropped makes room.
  EXPECT_EQ(clients.size(), 12u);
  clients.clear();
  EXPECT_TRUE(eventually([&] {
    TestClient client(server.port());
    const auto response = client.call("GET", "/large");
    return response.status == 200 && response.body.size() == 16 * kMiB;
  }));
}

}  // namespace
}  // namespace skiff::http
