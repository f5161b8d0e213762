// Tests the cache's file: a block is read back as it was written, or not at all.
#include "store/block_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "base/load_error.h"
#include "store/temp_dir_testing.h"

namespace skiff::store {
namespace {

using testing::HasSubstr;

constexpr int kTokens = 5;
constexpr size_t kPayload = 10000;

struct Block {
  kv::BlockKey key{};
  std::vector<Token> tokens;
  std::vector<std::byte> payload;
};

Block random_block(uint64_t seed) {
  std::mt19937_64 rng(seed);
  Block b{.key = {}, .tokens = std::vector<Token>(kTokens), .payload = {}};
  for (uint8_t& byte : b.key) byte = static_cast<uint8_t>(rng());
  for (Token& t : b.tokens) t = static_cast<Token>(rng() % 1000);
  for (size_t i = 0; i < kPayload; ++i) b.payload.push_back(static_cast<std::byte>(rng()));
  return b;
}

class Store : public testing::Test {
 protected:
  Store() {
    options_ = {
        .dir = dir_.path(), .max_bytes = 1 << 20, .payload = kPayload, .block_size = kTokens};
    options_.fingerprint.fill(7);
  }
  std::unique_ptr<BlockStore> open() { return BlockStore::open(options_); }
  std::string refusal() {
    try {
      open();
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  }
  static bool put(BlockStore& store, int record, const Block& b) {
    return store.write(record, b.key, b.tokens, b.payload);
  }
  static bool get(BlockStore& store, int record, const Block& b) {
    std::vector<std::byte> payload(kPayload);
    const bool ok = store.read(record, b.key, b.tokens, payload);
    EXPECT_TRUE(!ok || payload == b.payload) << "a wrong block";
    return ok;
  }

  TempDir dir_;
  StoreOptions options_;
};

TEST_F(Store, KeepsBlocksOverARestart) {
  {
    auto store = open();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(store->found().empty());
    for (int i : {3, 1, 4}) ASSERT_TRUE(put(*store, i, random_block(static_cast<uint64_t>(i))));
    EXPECT_TRUE(get(*store, 3, random_block(3)));
  }
  auto store = open();
  ASSERT_EQ(store->found().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {  // the oldest first
    const int record = std::array{3, 1, 4}[i];
    EXPECT_EQ(store->found()[i].record, record);
    EXPECT_EQ(store->found()[i].key, random_block(static_cast<uint64_t>(record)).key);
    EXPECT_TRUE(get(*store, record, random_block(static_cast<uint64_t>(record))));
  }
  EXPECT_FALSE(get(*store, 0, random_block(3))) << "never written";
  EXPECT_FALSE(get(*store, 1, random_block(3))) << "another block";
  Block other = random_block(3);
  other.tokens[2] ^= 1;
  EXPECT_FALSE(get(*store, 3, other)) << "a key alone is not trusted";
  struct stat info {};
  ASSERT_EQ(stat(dir_.file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(Store, StaysWithinItsSize) {
  auto store = open();
  const int n = store->num_records();
  EXPECT_EQ(n, ((1 << 20) - 4096) / 12288);
  for (int i = 0; i < n; ++i) ASSERT_TRUE(put(*store, i, random_block(9)));
  EXPECT_LE(std::filesystem::file_size(dir_.file()), options_.max_bytes);
  EXPECT_DEATH(put(*store, n, random_block(9)), "num_records");
  store.reset();
  options_.max_bytes /= 2;
  EXPECT_LE(open()->num_records(), n / 2);
  EXPECT_LE(std::filesystem::file_size(dir_.file()), options_.max_bytes);
  options_.max_bytes = 10000;
  EXPECT_THAT(refusal(), HasSubstr("--kvcache-storage-size"));
}

TEST_F(Store, NoFlippedBitComesBack) {
  std::mt19937_64 rng(5);
  int whole = 0;
  for (int round = 0; round < 300; ++round) {
    {
      auto store = open();
      for (int i = 0; i < 4; ++i)
        ASSERT_TRUE(put(*store, i, random_block(static_cast<uint64_t>(i))));
    }
    dir_.damage(rng);
    auto store = open();
    ASSERT_NE(store, nullptr);
    int good = 0;
    for (int i = 0; i < 4; ++i) good += get(*store, i, random_block(static_cast<uint64_t>(i)));
    ASSERT_GE(good, 3);
    whole += good == 4;
  }
  EXPECT_LT(whole, 100) << "most flips hit something";
}

TEST_F(Store, ATornRecordIsNotThere) {
  for (const int lost : {1, 5000, 9000, 12000}) {
    {
      auto store = open();
      ASSERT_TRUE(put(*store, 0, random_block(1)));
      ASSERT_TRUE(put(*store, 1, random_block(2)));
    }
    const auto end = 4096 + 12288 + 80 + kTokens * sizeof(Token) + kPayload;
    ASSERT_EQ(std::filesystem::file_size(dir_.file()), end);
    std::filesystem::resize_file(dir_.file(), end - static_cast<size_t>(lost));
    auto store = open();
    EXPECT_TRUE(get(*store, 0, random_block(1)));
    EXPECT_FALSE(get(*store, 1, random_block(2)));
    ASSERT_TRUE(put(*store, 1, random_block(2)));
  }
}

TEST_F(Store, AnotherModelBeginsAnew) {
  ASSERT_TRUE(put(*open(), 0, random_block(1)));
  options_.fingerprint[0] ^= 1;
  testing::internal::CaptureStdout();
  auto store = open();
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("begun anew"));
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->found().empty());
  EXPECT_FALSE(get(*store, 0, random_block(1)));
}

TEST_F(Store, ADamagedHeaderBeginsAnew) {
  ASSERT_TRUE(put(*open(), 0, random_block(1)));
  std::fstream(dir_.file(), std::ios::in | std::ios::out | std::ios::binary).seekp(40).put('x');
  EXPECT_TRUE(open()->found().empty());
}

TEST_F(Store, AForeignFileIsLeftAlone) {
  for (const std::string& text : {std::string("my thesis"), std::string(9000, 'x')}) {
    std::ofstream(dir_.file()) << text;
    testing::internal::CaptureStdout();
    EXPECT_EQ(open(), nullptr);
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("left alone"));
    std::ifstream in(dir_.file());
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  }
}

TEST_F(Store, LinksAreRefused) {
  const std::string link = dir_.path() + "/link";
  std::filesystem::create_directory(dir_.path() + "/real");
  std::filesystem::create_symlink(dir_.path() + "/real", link);
  for (const char* end : {"", "/", "//", "/."}) {
    options_.dir = link + end;
    EXPECT_THAT(refusal(), HasSubstr("symbolic link"));
  }
  options_.dir = dir_.path();
  std::filesystem::create_symlink("/dev/null", dir_.file());
  EXPECT_THAT(refusal(), HasSubstr("symbolic link"));
  std::filesystem::remove(dir_.file());
  std::ofstream(dir_.path() + "/elsewhere") << "";
  std::filesystem::create_hard_link(dir_.path() + "/elsewhere", dir_.file());
  EXPECT_THAT(refusal(), HasSubstr("wrong kind"));
}

TEST_F(Store, FoldersOfOthersAreRefused) {
  chmod(dir_.path().c_str(), 0777);
  EXPECT_THAT(refusal(), HasSubstr("other users"));
  chmod(dir_.path().c_str(), 0700);
  options_.dir = dir_.path() + "/no/such/parent";
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  options_.dir = dir_.path() + "/made";
  EXPECT_NE(open(), nullptr);
  struct stat info {};
  ASSERT_EQ(stat(options_.dir.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(chown(options_.dir.c_str(), 65534, 65534), 0);
  EXPECT_THAT(refusal(), HasSubstr("another user"));
}

TEST_F(Store, OneProcessAtATime) {
  const auto store = open();
  EXPECT_THAT(refusal(), HasSubstr("another process"));
}

// While it lives no file can grow beyond `bytes`.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  rlimit old_{};
  void (*before_)(int);
};

int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST_F(Store, AFullDiskIsAMissAndOneWarningUntilThereIsRoom) {
  auto store = open();
  ASSERT_TRUE(put(*store, 0, random_block(1)));
  ASSERT_TRUE(put(*store, 1, random_block(2)));
  testing::internal::CaptureStdout();
  {
    const FullDisk full(20000);
    EXPECT_FALSE(put(*store, 1, random_block(3)));
    EXPECT_FALSE(put(*store, 2, random_block(4)));
    EXPECT_FALSE(get(*store, 1, random_block(3)));
    EXPECT_FALSE(get(*store, 1, random_block(2))) << "half of it was overwritten";
    EXPECT_TRUE(get(*store, 0, random_block(1)));
  }
  EXPECT_TRUE(put(*store, 1, random_block(3)));
  EXPECT_TRUE(get(*store, 1, random_block(3)));
  EXPECT_EQ(count_of(testing::internal::GetCapturedStdout(), "cannot be written to"), 1);
}

TEST_F(Store, AFileThatCannotBeBegunIsNotUsed) {
  testing::internal::CaptureStdout();
  {
    const FullDisk full(2000);
    EXPECT_EQ(open(), nullptr);
  }
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("cannot be begun"));
  EXPECT_NE(open(), nullptr) << "half a header is nobody else's file";
}

}  // namespace
}  // namespace skiff::store
