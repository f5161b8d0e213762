// The client against servers on loopback that are slow, or say more than an answer.
#include "fetch/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/seconds.h"
#include "fetch/server_testing.h"

namespace skiff::fetch {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: 1\r\n\r\nhello";
constexpr char kHints[] = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n";
constexpr double kSoon = 0.2;   // seconds that a test gives an exchange
constexpr double kLater = 5.0;  // seconds, far above it on a busy machine

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Sends `part` again and again until the client leaves.
void drip(const Peer& peer, std::string_view part) {
  while (peer.send(part)) pause(0.01);
}

Result<std::pair<Response, std::string>> ask(const TestServer& server,
                                             const Client::Options& options = {}) {
  return Client(options).fetch({.url = server.url()}, 1 << 20);
}

TEST(Client, InterimResponsesAreNoAnswers) {
  const TestServer server([](const Peer& peer) {
    peer.send("HTTP/1.1 100 Continue\r\n\r\n");
    peer.send(std::string(kHints) + kHints + kAnswer);
  });
  int heads = 0;
  std::string body;
  const auto answer = Client({}).exchange(
      {.url = server.url()},
      [&](const Response& head) {
        ++heads;
        EXPECT_EQ(head.status, 200);
        EXPECT_EQ(head.header("link"), "");
        EXPECT_EQ(head.header("x-own"), "1");
        return ok();
      },
      [&](std::string_view piece) {
        body += piece;
        return ok();
      });
  ASSERT_TRUE(answer) << answer.error().what;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(heads, 1);
  EXPECT_EQ(body, "hello");
}

TEST(Client, InterimResponsesWithoutAnEndAreRefused) {
  const TestServer endless([](const Peer& peer) { drip(peer, kHints); });
  const auto many = ask(endless);
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().what, HasSubstr("103"));
  const TestServer switching([](const Peer& peer) {
    peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
  });
  const auto other = ask(switching);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().what, HasSubstr("101"));
}

// Each byte comes in time, but there is no end to them.
TEST(Client, SlowAnswersHaveAnEnd) {
  const std::string body = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
  const std::string head = "HTTP/1.1 200 OK\r\nX-Long: ";
  for (const std::string& start : {body, head}) {
    const TestServer server([&](const Peer& peer) {
      peer.send(start);
      drip(peer, "x");
    });
    const auto began = Clock::now();
    const auto answer = ask(server, {.total_seconds = kSoon, .body_rate = 1e6});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Code::kExhausted);
    EXPECT_LT(seconds_since(began), kLater) << start;
    EXPECT_THAT(answer.error().what, HasSubstr("not over after"));
  }
}

TEST(Client, ASilentServerHasTheTotalTimeAtMost) {
  const TestServer server([](const Peer& peer) {
    pause(3 * kSoon);
    peer.send(kAnswer);
  });
  const auto answer = ask(server, {.total_seconds = kSoon});
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().what, HasSubstr("not over after"));
  EXPECT_TRUE(ask(server, {.total_seconds = kLater}));
}

// A file of any size may be fetched, as long as enough of it comes.
TEST(Client, BytesOfTheBodyEarnTime) {
  const TestServer server([](const Peer& peer) {
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + std::string(2000, 'x'));
    pause(3 * kSoon);
    peer.send(std::string(1000, 'y'));
  });
  const auto answer = ask(server, {.total_seconds = kSoon, .body_rate = 100});
  ASSERT_TRUE(answer) << answer.error().what;
  EXPECT_EQ(answer->second, std::string(2000, 'x') + std::string(1000, 'y'));
  EXPECT_FALSE(ask(server, {.total_seconds = kSoon, .body_rate = 0}));
}

TEST(Client, AddressesAreTriedInTheirOrder) {
  const TestServer server([](const Peer& peer) { peer.send(kAnswer); });
  Client client({}, [](const std::string& host) -> Result<Addresses> {
    EXPECT_EQ(host, "two.example");
    return Addresses{"::1", "127.0.0.1"};  // nobody listens at the first
  });
  const auto answer = client.fetch({.url = server.url("two.example")}, 100);
  ASSERT_TRUE(answer) << answer.error().what;
  EXPECT_EQ(answer->second, "hello");
}

}  // namespace
}  // namespace skiff::fetch
