#include "serve/queue/shared_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "serve/queue/reply_testing.h"

namespace skiff::queue {
namespace {

using Clock = std::chrono::steady_clock;
constexpr char kPath[] = "/v1/completions";

bool eventually(const std::function<bool()>& holds) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (!holds() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

// A store that does as it is told.
class ToldStore : public Store {
 public:
  Status connect() override { return ok(); }
  Status put(const std::string& id, const std::string&, int) override {
    std::lock_guard lock(mutex_);
    put_ = id;
    return ok();
  }
  Result<std::optional<Taken>> take() override {
    std::lock_guard lock(mutex_);
    return std::exchange(taken, std::nullopt);
  }
  Result<std::vector<bool>> send(std::span<const Outgoing> pieces) override {
    if (sending) sending();
    return std::vector<bool>(pieces.size(), true);
  }
  Result<std::vector<bool>> beat(int, std::span<const Lease> held) override {
    ++beats;
    return std::vector<bool>(held.size(), true);
  }
  Result<std::vector<Seen>> look(std::span<const std::string> ids) override {
    ++looks;
    return std::vector<Seen>(ids.size(), Seen{standing, 1});
  }
  Result<int64_t> call_back(const Lease& lease) override { return lease.number + 1; }
  Status give_back(const Lease&) override { return ok(); }
  Status drop(std::span<const std::string>) override { return ok(); }
  Status leave() override { return ok(); }
  Result<std::vector<std::string>> receive() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (deaf) return Error{Code::kExhausted, "deaf"};
    std::lock_guard lock(mutex_);
    return std::exchange(inbox_, {});
  }

  std::string id_of_put() const {
    std::lock_guard lock(mutex_);
    return put_;
  }
  void tell(std::string message) {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
  }

  // Set before the queue starts, but for the atomic ones.
  std::optional<Taken> taken;
  std::function<void()> sending;
  Seen::Standing standing = Seen::Standing::kHeld;
  std::atomic<int> beats{0}, looks{0};
  std::atomic<bool> deaf{false};  // nothing can be received

 private:
  mutable std::mutex mutex_;
  std::string put_;                 // guarded by mutex_
  std::vector<std::string> inbox_;  // guarded by mutex_
};

struct SharedQueueTest : ::testing::Test {
  // `handler` computes what comes to kPath, and the queue begins with `room` for it.
  void start(double lease, int room, http::HttpHandler handler) {
    QueueConfig config;
    config.store.instance = "me";
    config.store.lease_seconds = lease;
    queue.emplace(
        config, std::move(told),
        QueueHooks{.capacity = [room] { return Capacity{.load = 1, .room = room, .serves = true}; },
                   .cache_part = [](const http::HttpRequest&) { return ""; }});
    routes = queue->share(
        {{.method = "POST", .path = kPath, .handler = std::move(handler), .refuse_when_full = [] {
            return std::nullopt;
          }}});
    queue->start();
  }
  static http::HttpRequest request() {
    http::HttpRequest request;
    request.method = "POST";
    request.path = kPath;
    request.request_id = "id";
    return request;
  }

  std::unique_ptr<ToldStore> told = std::make_unique<ToldStore>();
  ToldStore& store = *told;
  std::optional<SharedQueue> queue;
  std::vector<http::Route> routes;
};

TEST_F(SharedQueueTest, AStreamThatNeverPausesLeavesTimeForSignsOfLife) {
  constexpr int kBeats = 5;
  std::mutex mutex;
  std::shared_ptr<http::HttpReply> reply;  // guarded by mutex
  bool starved = false;                    // the thread that sends was
  const auto end = Clock::now() + std::chrono::seconds(20);
  store.taken = Taken{.lease = {"other:1", 1}, .request = write_request(request(), "")};
  // Another piece waits whenever one is sent.
  store.sending = [&] {
    starved = starved || (store.beats < kBeats && Clock::now() > end);
    std::lock_guard lock(mutex);
    if (store.beats < kBeats && !starved) reply->write("more");
  };
  start(/*lease=*/0.5, /*room=*/1, [&](const http::HttpRequest&, auto given) {
    std::lock_guard lock(mutex);
    reply = std::move(given);
    reply->begin_stream({.status = 200, .body = "", .content_type = "text/event-stream"});
  });
  EXPECT_TRUE(eventually([&] { return store.beats >= kBeats; }));
  queue->stop();
  EXPECT_FALSE(starved);
  reply = nullptr;
}

// Others may be about to renew them.
TEST_F(SharedQueueTest, LeasesThatExpiredWithoutTheStoreHaveATimeToBeRenewed) {
  const auto reply = std::make_shared<testing::KeptReply>();
  store.standing = Seen::Standing::kExpired;
  start(/*lease=*/10, /*room=*/0, nullptr);
  ASSERT_TRUE(eventually(
      [&] { return queue->metrics().find("shared_queue_connected 1") != std::string::npos; }));
  routes.front().handler(request(), reply);
  ASSERT_TRUE(eventually([&] { return !store.id_of_put().empty(); }));
  const Lease lease{store.id_of_put(), 1};
  store.tell(write_note({.kind = Note::Kind::kTaken, .lease = lease}));
  Piece piece{.lease = lease, .begins = true, .streams = true, .head = {}, .bytes = "a"};
  store.tell(write_piece(piece));
  ASSERT_TRUE(eventually([&] { return store.looks >= 1; }));
  piece = {.lease = lease, .index = 1, .ends = true, .head = {}, .bytes = "b"};
  store.tell(write_piece(piece));
  EXPECT_TRUE(eventually(
      [&] { return queue->metrics().find("shared_queue_answered_total 1") != std::string::npos; }));
  queue->stop();
  EXPECT_EQ(reply->response.body, "ab");
}

TEST_F(SharedQueueTest, NothingIsSharedWhoseAnswerCannotBeHeard) {
  const auto connects = [&](int value) {
    return eventually([&] {
      return queue->metrics().find(fmt::format("shared_queue_connected {}", value)) !=
             std::string::npos;
    });
  };
  start(/*lease=*/10, /*room=*/0, [](const http::HttpRequest&, const auto& reply) {
    reply->send({.status = 200, .body = "from here"});
  });
  ASSERT_TRUE(connects(1));
  store.deaf = true;
  EXPECT_TRUE(connects(0));
  const auto reply = std::make_shared<testing::KeptReply>();
  routes.front().handler(request(), reply);
  EXPECT_EQ(reply->response.body, "from here");
  store.deaf = false;
  EXPECT_TRUE(connects(1));
}

}  // namespace
}  // namespace skiff::queue
