#include "peer/server_link.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  std::span<std::byte> place_for(const Block& /*block*/) override { return place_; }
  void came(const Block& block, const Arrival& arrival) override {
    came_.push_back(block.job);
    bytes_.assign(arrival.bytes.begin(), arrival.bytes.end());
    EXPECT_EQ(arrival.sum, sum_of(arrival.bytes));
    EXPECT_EQ(arrival.sum, (Sum{block.low, block.high}));
  }
  void found(ServerLink& link, const Here& here, const Found& found) override {
    found_.push_back(here);
    bytes_.assign(found.bytes.begin(), found.bytes.end());
    link.taken(here.job);
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
      pollfd both[] = {link.polled(), link.memory_polled()};
      poll(both, 2, 50);
      link.serve(both[0].revents);
      link.keep_alive(ServerLink::Clock::now());
    }
    return done();
  }

  LinkConfig config_{.key = "secret", .facts = {{"the build", "a"}}, .block_bytes = 16};
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>(16, 4, 1);
  std::optional<BlockServer> server_;
  std::vector<uint64_t> came_, missed_;
  std::vector<Here> found_;
  std::vector<std::byte> bytes_;
  std::span<std::byte> place_;  // where blocks go; empty: the link's own memory
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

// A server of a test's own, which has greeted the link and been greeted.
class OwnServer {
 public:
  OwnServer(ServerLink& link, const Fd& listener, const std::string& key,
            const std::string& memory = "")
      : stream_(Fd()) {
    EXPECT_TRUE(link.connect());
    pollfd one{listener.get(), POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 20000), 1);
    stream_ = Stream(accept_from(listener));
    const Digest nonce = random_nonce();
    say(Hello{.nonce = nonce});
    std::optional<Login> login;
    for (int i = 0; i < 2000 && !login; ++i) {
      one = link.polled();
      poll(&one, 1, 10);
      link.serve(one.revents);
      stream_.receive(kMaxGreeting);
      std::string_view in = stream_.received();
      if (const auto message = take(in, kMaxGreeting); message && *message)
        login = std::get<Login>(**message);
    }
    if (login) say(Welcome{proof(key, "prefill", login->nonce, nonce), 60000, memory});
    if (login) given_ = memory_proof(key, "given", nonce, login->nonce);
  }
  void say(const Message& message) {
    write(message, stream_.out());
    EXPECT_TRUE(stream_.send());
  }
  // What the answer to the question for memory says.
  const std::string& given() const { return given_; }
  void say_bytes(std::span<const std::byte> bytes) {
    stream_.send_body(bytes);
    EXPECT_TRUE(stream_.send() && stream_.body_sent());
  }

 private:
  Stream stream_;
  std::string given_;
};

// A server whose memory the link asks for, at a socket of the test's own.
class MemoryOfAServer : public ServerLinkTest {
 protected:
  MemoryOfAServer() : server_(link_, listener_, config_.key, socket_.name()) {
    for (size_t i = 0; i < 2; ++i) std::ranges::fill(block(i), static_cast<std::byte>(i + 5));
  }
  std::span<std::byte> block(size_t i) const { return memory_.bytes().subspan(16 * i, 16); }
  // Answers the link's question, and returns whether it then waits for no more answers.
  bool give(const std::string& text, int file) {
    pollfd one{socket_.fd(), POLLIN, 0};
    if (!asker_) {
      comes_to(link_, [&] { return poll(&one, 1, 0) == 1; });
      asker_ = socket_.take();
    }
    EXPECT_TRUE(asker_ && socket_.send(asker_->from, text, file));
    link_.serve(0);
    return link_.memory_polled().fd < 0;
  }
  Here named(uint64_t place) const { return {.job = 4, .key = key_of(1), .place = place}; }

  const ShareableMemory memory_{2 * 16 + 15, /*shared=*/true};  // two blocks, and not quite three
  const LocalSocket socket_ = std::move(*LocalSocket::open());
  const Fd listener_ = std::move(*listen_on({"127.0.0.1", 0}));
  ServerLink link_ = link_to(port_of(listener_));
  std::optional<LocalSocket::Letter> asker_;
  OwnServer server_;
};

TEST_F(MemoryOfAServer, ItsBlocksAreFoundWhereItSays) {
  EXPECT_FALSE(give("something else", memory_.file())) << "others may write to the socket";
  EXPECT_TRUE(give(server_.given(), memory_.file()));
  for (const uint64_t place : {1, 0}) {
    server_.say(named(place));
    EXPECT_TRUE(comes_to(link_, [&] { return found_.size() == 2 - place; }));
    EXPECT_EQ(bytes_, std::vector<std::byte>(16, static_cast<std::byte>(place + 5)));
  }
  EXPECT_TRUE(lost_.empty());
}

TEST_F(MemoryOfAServer, WhatLiesOutsideEndsTheConnection) {
  for (const uint64_t place : {uint64_t{2}, uint64_t{1} << 60, ~uint64_t{0}}) {
    EXPECT_TRUE(give(server_.given(), memory_.file()));
    server_.say(named(place));
    EXPECT_TRUE(comes_to(link_, [&] { return !lost_.empty(); }));
    EXPECT_EQ(lost_, std::vector<Loss>{Loss::kDamaged});
    EXPECT_TRUE(found_.empty());
    lost_.clear();
    asker_.reset();
    server_ = OwnServer(link_, listener_, config_.key, socket_.name());
  }
}

TEST_F(MemoryOfAServer, WhatCannotBeReadIsDoneWithout) {
  EXPECT_TRUE(give(server_.given(), -1)) << "no file";
  server_.say(named(0));
  EXPECT_TRUE(comes_to(link_, [&] { return !lost_.empty(); }));
  EXPECT_EQ(lost_, std::vector<Loss>{Loss::kDamaged}) << "nothing was mapped";
  asker_.reset();
  server_ = OwnServer(link_, listener_, config_.key, socket_.name());
  EXPECT_TRUE(give(server_.given(), listener_.get())) << "a file that is no memory";
  EXPECT_TRUE(link_.ready());
}

TEST_F(MemoryOfAServer, WhoDoesNotAnswerIsDoneWithout) {
  EXPECT_TRUE(comes_to(link_, [&] { return link_.ready(); }));
  EXPECT_GE(link_.memory_polled().fd, 0);
  link_.keep_alive(ServerLink::Clock::now() + std::chrono::seconds(11));
  EXPECT_LT(link_.memory_polled().fd, 0);
  EXPECT_TRUE(link_.ready());
}

class BlocksInPlace : public ServerLinkTest {
 protected:
  BlocksInPlace() {
    config_.block_bytes = kBytes;
    for (size_t i = 0; i < kBytes; ++i) block_[i] = static_cast<std::byte>(i * 7 / 3);
    place_ = mine_;
  }
  Block announced(uint64_t job) const {
    const Sum sum = sum_of(block_);
    return {.job = job, .key = key_of(1), .low = sum.low, .high = sum.high};
  }
  static constexpr size_t kBytes = 20000;  // more than a portion of frames
  std::vector<std::byte> block_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> mine_ = std::vector<std::byte>(kBytes);
  const Fd listener_ = std::move(*listen_on({"127.0.0.1", 0}));
};

TEST_F(BlocksInPlace, ABlockGoesToThePlaceOfItsOwner) {
  ServerLink link = link_to(port_of(listener_));
  OwnServer server(link, listener_, config_.key);
  for (uint64_t job = 1; job <= 3; ++job) {
    server.say(announced(job));
    server.say_bytes(block_);
    server.say(Miss{.job = 10 + job});
  }
  EXPECT_TRUE(comes_to(link, [&] { return missed_.size() == 3; }));
  EXPECT_EQ(came_, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(missed_, (std::vector<uint64_t>{11, 12, 13}));
  EXPECT_EQ(bytes_, block_);
  EXPECT_EQ(mine_, block_);
}

TEST_F(BlocksInPlace, WhatIsDiscardedIsWrittenToNoMore) {
  ServerLink link = link_to(port_of(listener_));
  OwnServer server(link, listener_, config_.key);
  const std::span whole(block_);
  server.say(announced(1));
  server.say_bytes(whole.first(kBytes / 2));
  EXPECT_TRUE(comes_to(link, [&] { return mine_[kBytes / 2 - 1] == block_[kBytes / 2 - 1]; }));
  link.discard(2);  // another job
  link.discard(1);
  std::ranges::fill(mine_, std::byte{9});
  server.say_bytes(whole.subspan(kBytes / 2));
  EXPECT_TRUE(comes_to(link, [&] { return !came_.empty(); }));
  EXPECT_EQ(bytes_, block_) << "the block is whole all the same";
  EXPECT_EQ(mine_, std::vector<std::byte>(kBytes, std::byte{9}));
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
