#include "peer/block_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "peer/block_server.h"

namespace skiff::peer {
namespace {

using namespace std::chrono_literals;

// An answer, and the client's numbers at that time.
struct Answered {
  TierDone answer;
  Stats stats;
};

class BlockClientTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 16, kTokens = 8;
  static constexpr uint64_t kLease = 1;

  BlockClientTest() {
    const int place = shelf_->reserve(key(1));
    shelf_->fill(place, std::vector<std::byte>(kBytes, std::byte{7}));
    shelf_->settle(place, true);
    server_.emplace(BlockServer::Config{.settings = {.role = Role::kPrefill},
                                        .facts = {},
                                        .compute = [](const NewSequence&) {},
                                        .cancel = [](SeqId) {}},
                    shelf_);
    client_ = std::make_unique<BlockClient>(BlockClient::Config{
        .settings = {.role = Role::kDecode, .prefills = {{"127.0.0.1", server_->port()}}},
        .facts = {},
        .block_bytes = kBytes,
        .put = [](int, std::span<const std::byte>) {},
        .answer = [this](const TierDone& answer) { hear(answer); }});
  }
  static kv::BlockKey key(uint8_t byte) {
    kv::BlockKey key{};
    key.fill(byte);
    return key;
  }
  void open(std::vector<kv::BlockKey> keys, size_t tokens) {
    Open wish;
    wish.lease = kLease;
    wish.keys = std::move(keys);
    client_->open(std::move(wish), tokens, std::nullopt);
  }
  // Returns what was answered to a read.
  Answered answer_to(uint64_t job) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [&] { return answered_.contains(job); }));
    return answered_[job];
  }
  void read(uint64_t job, const kv::BlockKey& wanted) {
    client_->start({.id = job,
                    .record = static_cast<int>(kLease),
                    .key = wanted,
                    .tokens = std::vector<Token>(kTokens)});
  }

  void hear(const TierDone& answer) {
    const Stats stats = client_->stats();
    std::lock_guard lock(mutex_);
    answered_[answer.job] = {answer, stats};
    changed_.notify_all();
  }

  std::mutex mutex_;  // guards the member below
  std::map<uint64_t, Answered> answered_;
  std::condition_variable changed_;
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>(kBytes, 4, 1);
  std::optional<BlockServer> server_;
  std::unique_ptr<BlockClient> client_;
};

TEST_F(BlockClientTest, AnAnswerIsCountedBeforeItIsGiven) {
  open({key(1), key(2)}, kTokens + 3);  // the second block is a partial one
  read(1, key(1));
  const Answered here = answer_to(1);
  EXPECT_TRUE(here.answer.ok);
  EXPECT_EQ(here.stats.blocks, 1u);
  EXPECT_EQ(here.stats.bytes, kBytes);
  read(2, key(2));
  server_.reset();
  const Answered lost = answer_to(2);
  EXPECT_FALSE(lost.answer.ok);
  EXPECT_EQ(lost.stats.recomputed[static_cast<int>(Loss::kGone)], 3u);
}

}  // namespace
}  // namespace skiff::peer
