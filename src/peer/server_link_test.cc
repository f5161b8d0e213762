#include "peer/server_link.h"

#include <gtest/gtest.h>

#include "peer/block_server.h"

namespace skiff::peer {
namespace {

kv::BlockKey key_of(uint8_t byte) {
  kv::BlockKey key{};
  key.fill(byte);
  return key;
}

class ServerLinkTest : public testing::Test, public ServerLink::Owner {
 protected:
  ServerLinkTest() {
    const int place = shelf_->reserve(key_of(1));
    shelf_->fill(place, std::vector<std::byte>(16, std::byte{7}));
    shelf_->settle(place, true);
  }
  void came(const Block& block, std::span<const std::byte> bytes,
            ServerLink::Clock::time_point /*began*/) override {
    came_.push_back(block.job);
    bytes_.assign(bytes.begin(), bytes.end());
  }
  void missed(const Miss& miss) override { missed_.push_back(miss.job); }
  void lost(ServerLink& link, Loss why, const std::string& reason) override {
    EXPECT_FALSE(link.connected());
    lost_.push_back(why);
    reason_ = reason;
  }
  void serve(const std::string& key) {
    server_.emplace(BlockServer::Config{.settings = {.role = Role::kPrefill, .key = key},
                                        .facts = config_.facts,
                                        .compute = [](const NewSequence&) {},
                                        .cancel = [](SeqId) {}},
                    shelf_);
  }
  ServerLink link_to(int port) { return {{"127.0.0.1", port}, config_, *this}; }
  // Works on the link until it is lost or `done` holds, which is returned.
  template <class Done>
  static bool comes_to(ServerLink& link, Done done) {
    const auto end = ServerLink::Clock::now() + std::chrono::seconds(20);
    while (!done() && link.connected() && ServerLink::Clock::now() < end) {
      pollfd one = link.polled();
      poll(&one, 1, 50);
      link.serve(one.revents);
      link.keep_alive(ServerLink::Clock::now());
    }
    return done();
  }

  LinkConfig config_{.key = "secret", .facts = {{"the build", "a"}}, .block_bytes = 16};
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>(16, 4, 1);
  std::optional<BlockServer> server_;
  std::vector<uint64_t> came_, missed_;
  std::vector<std::byte> bytes_;
  std::vector<Loss> lost_;
  std::string reason_;
};

TEST_F(ServerLinkTest, WhatIsSentBeforeTheLoginIsAnsweredAfterIt) {
  serve("secret");
  ServerLink link = link_to(server_->port());
  link.send(Close{1});  // dropped: there is no connection
  ASSERT_TRUE(link.connect());
  EXPECT_FALSE(link.ready());
  Open open;
  open.lease = 1;
  open.keys = {key_of(1)};
  link.send(open);
  link.send(Read{.job = 5, .lease = 1, .key = key_of(1)});
  link.send(Read{.job = 6, .lease = 2, .key = key_of(1)});
  EXPECT_TRUE(comes_to(link, [&] { return !came_.empty() && !missed_.empty(); }));
  EXPECT_TRUE(link.ready());
  EXPECT_EQ(came_, std::vector<uint64_t>{5});
  EXPECT_EQ(missed_, std::vector<uint64_t>{6}) << "there is no lease 2";
  EXPECT_EQ(bytes_, std::vector<std::byte>(16, std::byte{7}));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(ServerLinkTest, AnEndedServerIsLeftAlone) {
  serve("secret");
  ServerLink link = link_to(server_->port());
  ASSERT_TRUE(link.connect());
  ASSERT_TRUE(comes_to(link, [&] { return link.ready(); }));
  server_.reset();
  EXPECT_TRUE(comes_to(link, [&] { return !lost_.empty(); }));
  EXPECT_EQ(lost_, std::vector<Loss>{Loss::kGone});
  EXPECT_EQ(reason_, "the connection has ended");
  EXPECT_TRUE(link.rests());
  EXPECT_FALSE(link.ready());
}

TEST_F(ServerLinkTest, BothSidesNeedTheKey) {
  serve("another");
  ServerLink link = link_to(server_->port());
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(comes_to(link, [&] { return !lost_.empty(); }));
  EXPECT_EQ(lost_, std::vector<Loss>{Loss::kRefused});
  EXPECT_NE(reason_.find("--pd-comm-key-file"), std::string::npos);
}

TEST_F(ServerLinkTest, DoubtEndsWithASignOfLife) {
  serve("secret");
  ServerLink link = link_to(server_->port());
  ASSERT_TRUE(link.connect());
  ASSERT_TRUE(comes_to(link, [&] { return link.ready(); }));
  link.doubt();
  EXPECT_TRUE(link.rests());
  EXPECT_TRUE(comes_to(link, [&] { return !link.rests(); }));
  EXPECT_TRUE(lost_.empty());
}

// A frozen program's system still takes connections, so each try costs the whole greeting time.
TEST_F(ServerLinkTest, ASilentServerIsLeftAloneForLongerEachTime) {
  const Fd listener = std::move(*listen_on({"127.0.0.1", 0}));
  ServerLink link = link_to(port_of(listener));
  const auto rest_after_a_try = [&] {
    EXPECT_TRUE(link.connect());
    link.keep_alive(ServerLink::Clock::now() + std::chrono::seconds(6));
    EXPECT_FALSE(link.connected());
    return link.rest_seconds();
  };
  const double first = rest_after_a_try(), second = rest_after_a_try();
  EXPECT_GT(second, 1.5 * first);
  for (int i = 0; i < 10; ++i) EXPECT_LE(rest_after_a_try(), 30);
}

// A server that has no proof of the key is not believed.
TEST_F(ServerLinkTest, AFalseServerIsNotBelieved) {
  for (const Message& welcome : {Message(Welcome{random_nonce(), 1000}), Message(Renew{})}) {
    lost_.clear();
    const Fd listener = std::move(*listen_on({"127.0.0.1", 0}));
    ServerLink link = link_to(port_of(listener));
    ASSERT_TRUE(link.connect());
    link.send(Close{9});
    pollfd one{listener.get(), POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, 20000), 1);
    Stream server(accept_from(listener));
    write(Hello{.nonce = random_nonce()}, server.out());
    write(welcome, server.out());
    ASSERT_TRUE(server.send());
    EXPECT_TRUE(comes_to(link, [&] { return !lost_.empty(); }));
    EXPECT_EQ(lost_, std::vector<Loss>{Loss::kRefused});
    EXPECT_FALSE(link.ready());
  }
}

}  // namespace
}  // namespace skiff::peer
