#include "peer/block_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/load_error.h"
#include "base/log.h"
#include "peer/guest_testing.h"

namespace skiff::peer {
namespace {

using namespace std::chrono_literals;

kv::BlockKey key_of(uint8_t byte) {
  kv::BlockKey key{};
  key.fill(byte);
  return key;
}

class BlockServerTest : public testing::Test {
 protected:
  BlockServerTest() {
    config_.facts = {{"the build", "a"}};
    config_.settings.role = Role::kPrefill;
    config_.compute = [this](NewSequence sequence) {
      std::lock_guard lock(mutex_);
      computed_.push_back(std::move(sequence));
    };
    config_.cancel = [this](SeqId id) {
      std::lock_guard lock(mutex_);
      cancelled_.push_back(id);
    };
  }
  void start() { server_ = std::make_unique<BlockServer>(config_, shelf_); }
  Guest guest() {
    Guest guest(server_->port());
    guest.log_in(config_.settings.key, config_.facts);
    EXPECT_TRUE(std::holds_alternative<Welcome>(*guest.hear()));
    return guest;
  }
  void put(uint8_t byte) {
    const int place = shelf_->reserve(key_of(byte));
    ASSERT_NE(place, Shelf::kNone);
    shelf_->fill(place, std::vector<std::byte>(16, std::byte{byte}));
    shelf_->settle(place, true);
  }
  static Open lease(uint64_t id, std::vector<kv::BlockKey> keys) {
    Open open;
    open.lease = id;
    open.keys = std::move(keys);
    return open;
  }
  template <class Right>
  bool comes_to(Right right) {
    for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(5ms)) {
      std::lock_guard lock(mutex_);
      if (right()) return true;
    }
    return false;
  }

  BlockServer::Config config_;
  std::mutex mutex_;  // guards the two below
  std::vector<NewSequence> computed_;
  std::vector<SeqId> cancelled_;
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>(16, 4, 1);
  std::unique_ptr<BlockServer> server_;
};

TEST_F(BlockServerTest, ABlockIsSentWhenItIsThere) {
  start();
  Guest one = guest();
  put(1);
  one.say(lease(7, {key_of(1), key_of(2)}));
  for (uint8_t i = 1; i <= 2; ++i) one.say(Read{.job = i, .lease = 7, .key = key_of(i)});
  for (uint8_t i = 1; i <= 2; ++i) {
    const auto block = std::get<Block>(*one.hear());
    EXPECT_EQ(block.job, i);
    EXPECT_EQ(one.bytes(16), std::string(16, static_cast<char>(i)));
    if (i == 1) put(2);
  }
  one.say(Renew{});
  EXPECT_TRUE(std::holds_alternative<Renew>(*one.hear()));
  one.say(Close{7});
  one.say(Read{.job = 3, .lease = 7, .key = key_of(1)});
  EXPECT_EQ(std::get<Miss>(*one.hear()).why, static_cast<uint8_t>(Loss::kMissing));
  EXPECT_EQ(shelf_->leased(), 0u);
}

TEST_F(BlockServerTest, WhatWillNotComeIsToldAtOnce) {
  config_.limits.grace_seconds = 0.05;
  start();
  Guest one = guest();
  Open asks = lease(1, {key_of(1)});
  asks.prompt = {1, 2, 3};
  one.say(asks);
  one.say(Read{.job = 1, .lease = 1, .key = key_of(1)});
  ASSERT_TRUE(comes_to([&] { return computed_.size() == 1; }));
  EXPECT_GE(computed_[0].id, BlockServer::kFirstSeq);
  EXPECT_EQ(computed_[0].prompt, asks.prompt);
  EXPECT_EQ(computed_[0].stop.max_tokens, 1);
  server_->ended(computed_[0].id, /*computed=*/false);
  EXPECT_EQ(std::get<Miss>(*one.hear()).why, static_cast<uint8_t>(Loss::kFailed));
  asks.lease = 2;
  one.say(asks);
  one.say(Read{.job = 2, .lease = 2, .key = key_of(1)});
  ASSERT_TRUE(comes_to([&] { return computed_.size() == 2; }));
  server_->ended(computed_[1].id, /*computed=*/true);  // and yet the block does not come
  EXPECT_EQ(std::get<Miss>(*one.hear()).why, static_cast<uint8_t>(Loss::kMissing));
}

TEST_F(BlockServerTest, WhoeverLeavesLeavesNothing) {
  start();
  for (const bool says_so : {true, false}) {
    {
      Guest one = guest();
      Open asks = lease(1, {key_of(1), key_of(2)});
      asks.prompt = {1};
      one.say(asks);
      ASSERT_TRUE(comes_to([&] { return shelf_->leased() == 2 && !computed_.empty(); }));
      if (says_so) one.say(Close{1});
      ASSERT_TRUE(comes_to([&] { return !says_so || shelf_->leased() == 0; }));
    }
    ASSERT_TRUE(comes_to([&] { return shelf_->leased() == 0 && !cancelled_.empty(); }));
    std::lock_guard lock(mutex_);
    EXPECT_EQ(cancelled_, std::vector<SeqId>{computed_[0].id});
    computed_.clear();
    cancelled_.clear();
  }
}

TEST_F(BlockServerTest, WhatWasPromisedIsHandedOutWhileDraining) {
  start();
  put(1);
  Guest one = guest();
  Open before = lease(1, {key_of(1)}), after = lease(2, {key_of(1)});
  before.prompt = after.prompt = {1, 2, 3};
  one.say(before);
  EXPECT_TRUE(comes_to([&] { return computed_.size() == 1; }));
  server_->begin_drain();
  one.say(after);
  one.say(lease(3, {key_of(1)}));  // for a prompt that a router brought here
  one.say(Read{.job = 2, .lease = 2, .key = key_of(1)});
  EXPECT_EQ(std::get<Miss>(*one.hear()).job, 2u);
  for (const uint64_t id : {1, 3}) {
    one.say(Read{.job = id, .lease = id, .key = key_of(1)});
    EXPECT_EQ(std::get<Block>(*one.hear()).job, id);
    one.bytes(16);
  }
  EXPECT_TRUE(comes_to([&] { return server_->stats().leases == 2; }));
  one.say(Close{1});
  one.say(Close{3});
  EXPECT_TRUE(comes_to([&] { return server_->stats().leases == 0; }));
  EXPECT_EQ(computed_.size(), 1u);
}

TEST_F(BlockServerTest, AStopEndsConnectionsAtOnce) {
  start();
  Guest one = guest();
  one.say(lease(1, {key_of(1)}));
  EXPECT_TRUE(comes_to([&] { return shelf_->leased() == 1; }));
  server_->stop();
  EXPECT_FALSE(one.hear());
  EXPECT_EQ(shelf_->leased(), 0u);
  EXPECT_EQ(server_->stats().connections, 0);
}

TEST_F(BlockServerTest, WhoDoesNotLogInIsSentAway) {
  config_.limits.greeting_seconds = 0.2;
  start();
  Guest silent(server_->port());
  EXPECT_TRUE(silent.hear());
  EXPECT_FALSE(silent.hear());
}

TEST_F(BlockServerTest, ASilentConnectionEndsWithItsLeases) {
  config_.settings.lease_seconds = 0.2;
  start();
  Guest one = guest();
  one.say(lease(1, {key_of(1)}));
  EXPECT_FALSE(one.hear());
  EXPECT_TRUE(comes_to([&] { return shelf_->leased() == 0; }));
}

TEST_F(BlockServerTest, StrangersAreRefused) {
  config_.settings.key = "secret";
  start();
  const auto refusal = [&](const std::string& key, const Facts& facts) {
    Guest one(server_->port());
    one.log_in(key, facts);
    const auto answer = one.hear();
    EXPECT_FALSE(one.hear()) << "the connection ends";
    return std::get<Refused>(*answer).why;
  };
  EXPECT_NE(refusal("guess", config_.facts).find("--pd-comm-key-file"), std::string::npos);
  EXPECT_NE(refusal("", config_.facts).find("--pd-comm-key-file"), std::string::npos);
  EXPECT_NE(refusal("secret", {{"the build", "b"}}).find("the build is a"), std::string::npos);
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(13, '\0'),
                                   std::string("\x04\0\0\0\x63zzzzzzzzzzzz", 17)}) {
    Guest one(server_->port());
    one.hear();
    one.say_bytes(bytes);
    EXPECT_TRUE(std::holds_alternative<Refused>(*one.hear()));
  }
  Guest early(server_->port());
  early.hear();
  early.say(lease(1, {key_of(1)}));
  EXPECT_TRUE(std::holds_alternative<Refused>(*early.hear()));
  EXPECT_EQ(shelf_->leased(), 0u);
  guest();
}

TEST_F(BlockServerTest, RefusalsFillNoLog) {
  start();
  const auto before = spdlog::default_logger();
  std::ostringstream said;
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "kept", std::make_shared<spdlog::sinks::ostream_sink_mt>(said)));
  for (int i = 0; i < 20; ++i) {
    Guest one(server_->port());
    one.hear();
    one.say_bytes("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(std::holds_alternative<Refused>(*one.hear()));
  }
  server_->stop();  // it writes no more
  spdlog::set_default_logger(before);
  const std::string log = said.str();
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_NE(log.find("at 127.0.0.1 was refused"), std::string::npos) << log;
}

TEST_F(BlockServerTest, BoundsAreKept) {
  config_.limits.reads = 2;
  start();
  const auto refused = [&](const std::vector<Message>& messages) {
    Guest one = guest();
    for (const Message& message : messages) one.say(message);
    const auto answer = one.hear();
    return answer && std::holds_alternative<Refused>(*answer);
  };
  const auto k = key_of(1);
  EXPECT_TRUE(refused({lease(1, {k}), lease(1, {k})})) << "the same number twice";
  const Read read{.job = 1, .lease = 1, .key = k};
  EXPECT_TRUE(refused({lease(1, {k}), read, read, read})) << "reads";
  EXPECT_TRUE(refused({Refused{"what only a server says"}}));
  EXPECT_TRUE(comes_to([&] { return shelf_->leased() == 0; }));
}

TEST_F(BlockServerTest, ALeaseTooManyCostsNoOther) {
  config_.limits.leases = 2;
  config_.limits.keys = 3;
  start();
  put(1);
  const auto k = key_of(1);
  Guest one = guest();
  for (const Open& wish : {lease(1, {k}), lease(2, {k, k, k}), lease(3, {k}), lease(4, {k})})
    one.say(wish);
  for (const uint64_t id : {2, 4}) {  // too many blocks, too many leases
    one.say(Read{.job = id, .lease = id, .key = k});
    EXPECT_EQ(std::get<Miss>(*one.hear()).job, id);
  }
  for (const uint64_t id : {1, 3}) {
    one.say(Read{.job = id, .lease = id, .key = k});
    EXPECT_EQ(std::get<Block>(*one.hear()).job, id);
    one.bytes(16);
  }
  one.say(Close{1});
  one.say(lease(5, {k}));
  one.say(Read{.job = 5, .lease = 5, .key = k});
  EXPECT_EQ(std::get<Block>(*one.hear()).job, 5u) << "there is room again";
}

TEST_F(BlockServerTest, StrangersCannotTakeAllConnections) {
  start();
  Guest one = guest();
  constexpr int kStrangers = 40;
  std::vector<Guest> strangers;
  strangers.reserve(kStrangers);
  for (int i = 0; i < kStrangers; ++i) strangers.emplace_back(server_->port());
  int met = 0;
  for (Guest& stranger : strangers) met += stranger.hear().has_value();
  EXPECT_EQ(met, kStrangers) << "all are greeted";
  Guest late(server_->port());
  late.log_in(config_.settings.key, config_.facts);
  EXPECT_TRUE(std::holds_alternative<Welcome>(*late.hear())) << "who comes after them is let in";
  EXPECT_FALSE(strangers.front().hear()) << "the oldest has gone";
  one.say(Renew{});
  EXPECT_TRUE(one.hear()) << "who was there is served";
}

// Lets the process open so many more files during its own life.
class FewFiles {
 public:
  explicit FewFiles(rlim_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = open("/dev/null", O_RDONLY);
    close(next);
    const rlimit few{static_cast<rlim_t>(next) + more, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(BlockServerTest, WithoutFileDescriptorsItWaits) {
  config_.limits.greeting_seconds = 60;
  start();
  Guest one = guest();
  std::optional<Guest> late;
  {
    const FewFiles limit(1);  // the guest has it
    late.emplace(server_->port());
    const std::clock_t begin = std::clock();
    std::this_thread::sleep_for(1s);
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 5) << "the processor is at rest";
    one.say(Renew{});
    EXPECT_TRUE(one.hear()) << "who was there is served";
  }
  EXPECT_TRUE(late->hear()) << "who has waited is greeted";
}

TEST_F(BlockServerTest, APortOpenToOthersNeedsAKey) {
  config_.settings.listen.host = "0.0.0.0";
  EXPECT_THROW(start(), LoadError);
  config_.settings.listen.host = "nowhere.example";
  config_.settings.key = "k";
  EXPECT_THROW(start(), LoadError);
}

}  // namespace
}  // namespace skiff::peer
