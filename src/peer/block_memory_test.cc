// Blocks that are read in the memory of a block server, and what that server and its client make of
// each other there.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "peer/block_client.h"
#include "peer/block_server.h"
#include "peer/guest_testing.h"
#include "peer/local_socket.h"

namespace skiff::peer {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBytes = 5000, kTokens = 8;
constexpr int kPlaces = 4;

kv::BlockKey key_of(uint8_t byte) {
  kv::BlockKey key{};
  key.fill(byte);
  return key;
}

Open lease(uint64_t id, std::vector<kv::BlockKey> keys) {
  Open open;
  open.lease = id;
  open.keys = std::move(keys);
  return open;
}

class BlockMemoryTest : public testing::Test {
 protected:
  BlockMemoryTest() { EXPECT_GE(shelf_->memory_file(), 0); }
  void start(const std::string& key = "") {
    server_ = std::make_unique<BlockServer>(
        BlockServer::Config{.settings = {.role = Role::kPrefill, .key = key},
                            .facts = {},
                            .compute = [](const NewSequence&) {},
                            .cancel = [](SeqId) {}},
        shelf_);
  }
  static std::vector<std::byte> bytes_of(uint8_t byte) {
    std::vector<std::byte> bytes(kBytes);
    for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * byte >> 3);
    return bytes;
  }
  bool put(uint8_t byte) {
    const int place = shelf_->reserve(key_of(byte));
    if (place == Shelf::kNone) return false;
    shelf_->fill(place, bytes_of(byte));
    shelf_->settle(place, true);
    return true;
  }
  // Puts other blocks to every place that is free for them.
  void fill_up() {
    for (uint8_t byte = 100; byte < 100 + kPlaces; ++byte) put(byte);
  }
  template <class Right>
  static bool comes_to(Right right) {
    for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(5ms))
      if (right()) return true;
    return false;
  }

  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>(kBytes, kPlaces, 1, /*shareable=*/true);
  std::unique_ptr<BlockServer> server_;
};

// What a test says to a server as the other side of its letters.
class MemoryServerTest : public BlockMemoryTest {
 protected:
  Guest guest(const std::string& key = "") {
    Guest guest(server_->port());
    guest.log_in(key, {});
    name_ = std::get<Welcome>(*guest.hear()).memory;
    EXPECT_FALSE(name_.empty());
    return guest;
  }
  std::optional<LocalSocket::Letter> answer_to(const std::string& text) {
    EXPECT_TRUE(socket_.send(name_, text));
    pollfd one{socket_.fd(), POLLIN, 0};
    poll(&one, 1, 500);
    return socket_.take();
  }
  std::string name_;  // from the latest guest's Welcome
  const LocalSocket socket_ = std::move(*LocalSocket::open());
};

TEST_F(MemoryServerTest, WhoHasLoggedInIsGivenItOnce) {
  start("secret");
  Guest one = guest("secret");
  const std::string wanted = one.memory_proof_of("secret", "wanted");
  for (const std::string& wrong :
       {std::string(), std::string(32, '\0'), one.memory_proof_of("guess", "wanted"),
        one.memory_proof_of("secret", "given"), wanted.substr(1), wanted + "x"})
    EXPECT_FALSE(answer_to(wrong));
  const auto letter = answer_to(wanted);
  ASSERT_TRUE(letter);
  EXPECT_EQ(letter->text, one.memory_proof_of("secret", "given"));
  const auto memory = map_shared(letter->file, kBytes);
  ASSERT_TRUE(memory);
  EXPECT_EQ((*memory)->bytes().size(), kBytes * kPlaces);
  EXPECT_FALSE(answer_to(wanted)) << "only once";
}

// A thread can change its own user through the system call, and what it sends is that user's.
TEST_F(MemoryServerTest, OtherUsersAreNotGivenIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  start();
  Guest one = guest();
  const std::string wanted = one.memory_proof_of("", "wanted");
  constexpr uid_t kNobody = 65534;
  std::jthread([&] {
    ASSERT_EQ(syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
    EXPECT_FALSE(answer_to(wanted));
  }).join();
  EXPECT_TRUE(answer_to(wanted)) << "its own user is";
}

TEST_F(MemoryServerTest, ABlockIsNamedOnceItIsThereAndStaysUntilItIsTaken) {
  start();
  Guest one = guest();
  const auto letter = answer_to(one.memory_proof_of("", "wanted"));
  ASSERT_TRUE(letter);
  const auto memory = map_shared(letter->file, kBytes);
  ASSERT_TRUE(memory);
  put(1);
  one.say(lease(7, {key_of(1), key_of(2)}));
  one.say(Read{.job = 1, .lease = 7, .key = key_of(1)});
  EXPECT_EQ(std::get<Block>(*one.hear()).job, 1u) << "it is not known to be mapped";
  one.bytes(kBytes);
  one.say(Mapped{});
  for (uint8_t job = 1; job <= 2; ++job) {
    one.say(Read{.job = job, .lease = 7, .key = key_of(job)});
    if (job == 2) put(2);
    const auto here = std::get<Here>(*one.hear());
    EXPECT_EQ(here.job, job);
    EXPECT_EQ(here.key, key_of(job));
    const auto bytes = (*memory)->bytes().subspan(here.place * kBytes, kBytes);
    EXPECT_TRUE(std::ranges::equal(bytes, bytes_of(job)));
    EXPECT_EQ((Sum{here.low, here.high}), sum_of(bytes_of(job)));
  }
  EXPECT_TRUE(comes_to([&] { return server_->stats().shared_blocks == 2; }));
  EXPECT_EQ(server_->stats().blocks, 3u);
  EXPECT_EQ(server_->stats().shared_bytes, 2 * kBytes);
  one.say(Taken{1});
  one.say(Taken{99});
  one.say(Read{.job = 1, .lease = 7, .key = key_of(1)});
  EXPECT_EQ(std::get<Here>(*one.hear()).job, 1u) << "the number is free again";
  one.say(Read{.job = 1, .lease = 7, .key = key_of(1)});
  EXPECT_EQ(std::get<Here>(*one.hear()).job, 1u);
  EXPECT_TRUE(std::holds_alternative<Refused>(*one.hear())) << "the same number twice";
}

// A block that left its lease, or whose reader has left, makes room like any other.
TEST_F(MemoryServerTest, ABlockThatIsReadKeepsItsPlace) {
  enum class End { kTaken, kClose, kGone };
  for (const End end : {End::kTaken, End::kClose, End::kGone}) {
    start();
    put(1);
    auto one = std::make_unique<Guest>(guest());
    one->say(Mapped{});
    one->say(lease(1, {key_of(1)}));
    one->say(Read{.job = 5, .lease = 1, .key = key_of(1)});
    EXPECT_TRUE(std::holds_alternative<Here>(*one->hear()));
    fill_up();
    EXPECT_TRUE(shelf_->has(key_of(1)));
    if (end == End::kTaken) one->say(Taken{5});
    if (end != End::kGone) one->say(Close{1});
    if (end == End::kGone) one.reset();
    EXPECT_TRUE(comes_to([&] {
      fill_up();
      for (uint8_t byte = 200; byte < 200 + kPlaces; ++byte) put(byte);
      return !shelf_->has(key_of(1));
    }));
    server_.reset();
  }
}

TEST_F(MemoryServerTest, ReadsThatAreNotTakenCount) {
  server_ = std::make_unique<BlockServer>(BlockServer::Config{.settings = {.role = Role::kPrefill},
                                                              .facts = {},
                                                              .limits = {.reads = 2},
                                                              .compute = [](const NewSequence&) {},
                                                              .cancel = [](SeqId) {}},
                                          shelf_);
  put(1);
  Guest one = guest();
  one.say(Mapped{});
  one.say(lease(1, {key_of(1)}));
  for (uint64_t job = 1; job <= 2; ++job) {
    one.say(Read{.job = job, .lease = 1, .key = key_of(1)});
    EXPECT_TRUE(std::holds_alternative<Here>(*one.hear()));
  }
  one.say(Read{.job = 3, .lease = 1, .key = key_of(1)});
  EXPECT_TRUE(std::holds_alternative<Refused>(*one.hear()));
}

// A whole client beside the server.
class MemoryClientTest : public BlockMemoryTest {
 protected:
  void connect(bool shares = true, bool in_place = true) {
    host_.assign(kPlaces, std::vector<std::byte>(kBytes));
    BlockClient::Config config{.settings = {.role = Role::kDecode,
                                            .shares_memory = shares,
                                            .prefills = {{"127.0.0.1", server_->port()}}},
                               .facts = {},
                               .block_bytes = kBytes,
                               .put =
                                   [this](int block, std::span<const std::byte> bytes) {
                                     host_[static_cast<size_t>(block)].assign(bytes.begin(),
                                                                              bytes.end());
                                   },
                               .copiers = 2,
                               .answer =
                                   [this](const TierDone& answer) {
                                     std::lock_guard lock(mutex_);
                                     answers_[answer.job] = answer.ok;
                                     changed_.notify_all();
                                   }};
    if (in_place)
      config.memory = [this](int block) { return std::span(host_[static_cast<size_t>(block)]); };
    client_ = std::make_unique<BlockClient>(std::move(config));
  }
  void open(uint64_t id, std::vector<kv::BlockKey> keys) {
    const size_t tokens = keys.size() * kTokens;
    client_->open(lease(id, std::move(keys)), tokens, std::nullopt);
  }
  void read(uint64_t job, uint64_t id, uint8_t byte, int host_block) {
    client_->start({.id = job,
                    .host_block = host_block,
                    .record = static_cast<int>(id),
                    .key = key_of(byte),
                    .tokens = std::vector<Token>(kTokens)});
  }
  bool answer_to(uint64_t job) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [&] { return answers_.contains(job); })) << job;
    return answers_[job];
  }
  // Reads a block again and again until one came through shared memory.
  bool comes_to_share() {
    const uint64_t before = client_->stats().shared_blocks;
    for (int i = 0; i < 2000; ++i) {
      const uint64_t job = ++last_;
      open(job, {key_of(1)});
      read(job, job, 1, 0);
      if (!answer_to(job)) return false;
      client_->close(job);
      if (client_->stats().shared_blocks > before) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  uint64_t last_ = 10000;  // job of comes_to_share()
  std::vector<std::vector<std::byte>> host_;
  std::mutex mutex_;  // guards the member below
  std::map<uint64_t, bool> answers_;
  std::condition_variable changed_;
  std::unique_ptr<BlockClient> client_;
};

TEST_F(MemoryClientTest, BlocksComeThroughSharedMemory) {
  for (const bool in_place : {true, false}) {
    start();
    put(1);
    connect(/*shares=*/true, in_place);
    ASSERT_TRUE(comes_to_share());
    const Stats before = client_->stats();
    open(1, {key_of(1), key_of(2), key_of(3)});
    for (uint8_t i = 1; i <= 3; ++i) read(i, 1, i, i);
    for (uint8_t i = 1; i <= 3; ++i) {
      if (i > 1) put(i);
      EXPECT_TRUE(answer_to(i));
      EXPECT_EQ(host_[i], bytes_of(i)) << "block " << int{i};
    }
    const Stats after = client_->stats();
    EXPECT_EQ(after.shared_blocks - before.shared_blocks, 3u);
    EXPECT_EQ(after.shared_bytes - before.shared_bytes, 3 * kBytes);
    EXPECT_EQ(after.blocks - before.blocks, 3u);
    client_.reset();
    EXPECT_TRUE(comes_to([&] { return shelf_->leased() == 0; }));
    server_.reset();
    answers_.clear();
    fill_up();
  }
}

TEST_F(MemoryClientTest, EitherSideMayHaveThemSent) {
  start();
  put(1);
  connect(/*shares=*/false);
  for (uint64_t job = 1; job <= 3; ++job) {
    open(job, {key_of(1)});
    read(job, job, 1, 0);
    EXPECT_TRUE(answer_to(job));
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(client_->stats().blocks, 3u);
  EXPECT_EQ(client_->stats().shared_blocks, 0u);
  client_.reset();
  server_.reset();
  shelf_ = std::make_shared<Shelf>(kBytes, kPlaces, 1, /*shareable=*/false);
  start();
  put(1);
  connect();
  for (uint64_t job = 4; job <= 6; ++job) {
    open(job, {key_of(1)});
    read(job, job, 1, 0);
    EXPECT_TRUE(answer_to(job));
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(client_->stats().shared_blocks, 0u);
}

// A byte of the shelf changes after its checksum was taken.
TEST_F(MemoryClientTest, ADamagedBlockIsComputedHere) {
  start();
  put(1);
  connect();
  ASSERT_TRUE(comes_to_share());
  put(2);
  {
    const auto loan = shelf_->lend(key_of(2));
    const_cast<std::byte&>(loan->bytes()[kBytes / 2]) ^= std::byte{4};
  }
  open(1, {key_of(2), key_of(3)});
  read(1, 1, 2, 2);
  read(2, 1, 3, 3);
  EXPECT_FALSE(answer_to(1));
  EXPECT_FALSE(answer_to(2)) << "what is behind it is of no use";
  EXPECT_EQ(client_->stats().recomputed[static_cast<int>(Loss::kDamaged)], 16u);
  EXPECT_TRUE(comes_to_share()) << "other blocks come as before";
}

// Whatever was under way is answered once, and the other side keeps nothing.
TEST_F(MemoryClientTest, LeasesMayEndWhileTheirBlocksAreCopied) {
  start();
  put(1);
  connect();
  ASSERT_TRUE(comes_to_share());
  constexpr uint64_t kLeases = 300;
  for (uint64_t id = 1; id <= kLeases; ++id) {
    open(id, {key_of(1)});
    read(id, id, 1, 0);
    if (id % 3 == 0) std::this_thread::sleep_for(100us);
    client_->close(id);
  }
  for (uint64_t id = 1; id <= kLeases; ++id) answer_to(id);
  EXPECT_TRUE(comes_to([&] { return shelf_->leased() == 0; }));
  EXPECT_TRUE(comes_to_share());
  for (uint64_t id = 5001; id <= 5020; ++id) {
    open(id, {key_of(1)});
    read(id, id, 1, 0);
  }
  server_.reset();
  for (uint64_t id = 5001; id <= 5020; ++id) answer_to(id);
}

}  // namespace
}  // namespace skiff::peer
