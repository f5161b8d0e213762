// The end of a server to which clients still connect.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "serve/http/connection.h"
#include "serve/http/server_testing.h"

namespace skiff::http {
namespace {

std::shared_ptr<HttpConnection> connection_of(const std::shared_ptr<HttpCore>& core) {
  StreamSocket socket(net::make_strand(net::any_io_executor(core->io.get_executor())));
  return std::make_shared<HttpConnection>(core, std::move(socket),
                                          HttpConnection::Origin{.client = "client"},
                                          ConnectionKind::kOrdinary);
}

// Whoever writes a reply holds its connection for the moment in which it wakes it, and the I/O
// threads may end in that moment.
TEST(HttpStopTest, WhatComesAfterTheEndIsDropped) {
  auto core = std::make_shared<HttpCore>(local_http_config(), HttpHooks{});
  const std::weak_ptr<HttpCore> left = core;
  auto connection = connection_of(core);
  std::vector<std::thread> threads;
  threads.emplace_back([&core] { core->io.run(); });
  core->end_io(threads);
  connection->wake();
  connection->refuse_upload();
  connection->close();
  connection.reset();
  core.reset();
  EXPECT_TRUE(left.expired());
}

TEST(HttpStopTest, WhatCameWhileTheThreadsEndedIsDone) {
  auto core = std::make_shared<HttpCore>(local_http_config(), HttpHooks{});
  const std::weak_ptr<HttpCore> left = core;
  auto connection = connection_of(core);
  const std::weak_ptr<HttpConnection> open = connection;
  std::vector<std::thread> threads;
  threads.emplace_back([&core] { core->io.run(); });
  while (!core->io.stopped()) std::this_thread::yield();
  connection->close();
  connection.reset();
  EXPECT_FALSE(open.expired());
  core->end_io(threads);
  EXPECT_TRUE(open.expired());
  core.reset();
  EXPECT_TRUE(left.expired());
}

// A connection that was accepted while stop() closed the others would keep it waiting until it is
// idle for too long. The moment is short, hence the many rounds.
TEST(HttpStopTest, WhoConnectsMeanwhileKeepsNothingOpen) {
  HttpConfig config = local_http_config();
  config.idle_seconds = 60;
  for (int round = 0; round < 50; ++round) {
    auto server = std::make_unique<Echo>(config);
    std::atomic<bool> over{false};
    std::vector<std::thread> crowd;
    crowd.reserve(3);
    for (int i = 0; i < 3; ++i)
      crowd.emplace_back([&over, port = server->port()] {
        std::list<TestClient> open;
        while (!over && open.size() < 100) try {
            open.emplace_back(port);
          } catch (const std::runtime_error&) {  // the server has stopped
            return;
          }
        while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    ASSERT_TRUE(eventually([&] { return server->server.connections() > 10; }));
    const auto begin = std::chrono::steady_clock::now();
    server->server.stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << round;
    over = true;
    for (std::thread& thread : crowd) thread.join();
  }
}

}  // namespace
}  // namespace skiff::http
