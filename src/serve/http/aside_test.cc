// Work aside of the workers holds up no request, and none of it outlives the server.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "serve/http/server_testing.h"

namespace skiff::http {
namespace {

constexpr int kJobs = 5;  // more than there are workers

TEST(Aside, RequestsDoNotWaitForIt) {
  Echo echo;
  std::promise<void> opened;
  const std::shared_future<void> gate = opened.get_future().share();
  std::atomic<int> begun = 0, ended = 0;
  for (int i = 0; i < kJobs; ++i)
    echo.server.aside([&, gate] {
      ++begun;
      gate.wait();
      ++ended;
    });
  ASSERT_TRUE(eventually([&] { return begun > 0; }));
  for (int i = 0; i < 2 * kJobs; ++i)
    EXPECT_EQ(echo.client().call("POST", "/now", "x").body, "POST /now  x");
  EXPECT_EQ(ended, 0);
  opened.set_value();
  EXPECT_TRUE(eventually([&] { return ended == kJobs; }));
}

TEST(Aside, NoneOutlivesTheServer) {
  auto echo = std::make_unique<Echo>();
  const auto kept = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < kJobs; ++i) echo->server.aside([kept] { ++*kept; });
  echo->server.stop();
  const int ran = *kept;
  echo->server.aside([kept] { ++*kept; });
  echo.reset();
  EXPECT_EQ(*kept, ran);
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace
}  // namespace skiff::http
