// The end of a server to which clients still connect.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "serve/http/server_testing.h"

namespace skiff::http {
namespace {

// A connection that was accepted while stop() closed the others would keep it waiting until it is
// idle for too long. The moment is short, hence the many rounds.
TEST(HttpStopTest, WhoConnectsMeanwhileKeepsNothingOpen) {
  HttpConfig config = local_http_config();
  config.idle_seconds = 60;
  for (int round = 0; round < 50; ++round) {
    auto server = std::make_unique<Echo>(config);
    std::atomic<bool> over{false};
    std::vector<std::thread> crowd;
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
