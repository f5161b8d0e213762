// The loader and the calls of NCCL against a library that only notes them.
#include "comm/nccl/library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <thread>
#include <type_traits>

#include "base/log.h"
#include "comm/communicator.h"
#include "comm/nccl/fake_library_testing.h"
#include "comm/nccl/link.h"
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define SKIFF_HAS_NCCL_HEADER 1
#endif

namespace skiff::nccl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

#ifdef SKIFF_HAS_NCCL_HEADER
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) <= 8);
static_assert(kSuccess == ncclSuccess && kInProgress == ncclInProgress && kBytes == ncclInt8);
static_assert(std::is_same_v<Comm, ncclComm_t> && std::is_same_v<Stream, cudaStream_t>);
static_assert(sizeof(Outcome) == sizeof(ncclResult_t) && sizeof(int) == sizeof(ncclDataType_t));
#endif

std::string why_not(const char* file) {
  const Result<Library> library = load_library(file);
  return library ? "" : library.error().what;
}

TEST(NcclLibrary, SaysWhatIsMissing) {
  EXPECT_THAT(why_not("libnccl-of-nobody.so.7"), HasSubstr("libnccl-of-nobody.so.7"));
  EXPECT_THAT(why_not(SKIFF_FAKE_NCCL_SHORT), HasSubstr("has no ncclSend"));
  EXPECT_THAT(why_not(SKIFF_FAKE_NCCL_OLD), HasSubstr("is NCCL 2.8.4; it takes 2.9.0 or later"));
}

TEST(NcclLibrary, KnowsItsVersion) {
  const Result<Library> library = load_library(SKIFF_FAKE_NCCL);
  ASSERT_TRUE(library) << library.error().what;
  EXPECT_EQ(library->version, 22809);
  EXPECT_EQ(version_text(library->version), "2.28.9");
}

class NcclLinkTest : public ::testing::Test {
 protected:
  // The library is the same one in all tests.
  static FakeNccl* fresh() {
    void* library = dlopen(SKIFF_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    FakeNccl* fake = reinterpret_cast<FakeNccl* (*)()>(dlsym(library, "fake_nccl"))();
    fake->calls.clear();
    fake->answer = fake->async_error = fake->held = 0;
    fake->holds = false;
    return fake;
  }
  Link link(int rank, int size) { return Link(nccl_, id_, rank, size); }

  FakeNccl* const fake_ = fresh();
  const Library nccl_ = *load_library(SKIFF_FAKE_NCCL);
  const UniqueId id_ = make_id(nccl_);
};

TEST_F(NcclLinkTest, JoinsAndLeaves) {
  { const Link one = link(2, 5); }
  EXPECT_THAT(fake_->calls, ElementsAre("id", "init 2 of 5 id 7", "destroy"));
}

TEST_F(NcclLinkTest, GathersBytes) {
  Link one = link(0, 2);
  std::byte mine[8], all[16];
  one.all_gather(mine, all, sizeof mine, nullptr);
  EXPECT_EQ(fake_->calls.back(),
            fmt::format("gather 8 of type 0 from {} to {}", fmt::ptr(mine), fmt::ptr(all)));
}

// Each other rank gets its piece, and its own goes into its place.
TEST_F(NcclLinkTest, ExchangesPieces) {
  Link one = link(1, 3);
  std::byte from[12], to[12];
  fake_->calls.clear();
  one.all_to_all(from, to, 4, nullptr);
  const auto send = [&](size_t other) {
    return fmt::format("send 4 of type 0 at {} to {}", fmt::ptr(&from[4 * other]), other);
  };
  const auto receive = [&](size_t other) {
    return fmt::format("receive 4 of type 0 at {} from {}", fmt::ptr(&to[4 * other]), other);
  };
  EXPECT_THAT(fake_->calls, ElementsAre("(", send(0), receive(0), send(2), receive(2), ")"));
}

TEST_F(NcclLinkTest, SaysWhatFails) {
  Link one = link(0, 2);
  fake_->answer = 6;
  try {
    one.all_gather(nullptr, nullptr, 1, nullptr);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "NCCL error while gathering what all ranks have: remote process exited; a cable "
                 "is out");
  }
}

TEST_F(NcclLinkTest, NoticesTroubleBehindCalls) {
  Link one = link(0, 2);
  EXPECT_EQ(one.trouble(), "");
  fake_->async_error = kInProgress;
  EXPECT_EQ(one.trouble(), "");
  fake_->async_error = 6;
  EXPECT_EQ(one.trouble(), "remote process exited");
}

TEST_F(NcclLinkTest, NothingIsCalledBehindAnAbort) {
  {
    Link one = link(0, 2);
    EXPECT_TRUE(one.abort("rank 1: gone", std::chrono::milliseconds(1000)));
    EXPECT_EQ(fake_->calls.back(), "abort");
    try {
      one.all_gather(nullptr, nullptr, 1, nullptr);
      FAIL();
    } catch (const comm::GroupEnded& ended) {
      EXPECT_STREQ(ended.what(), "rank 1: gone");
    }
    EXPECT_TRUE(one.abort("again", std::chrono::milliseconds(1000)));
    EXPECT_EQ(one.trouble(), "");
  }
  EXPECT_THAT(fake_->calls, ElementsAre("id", "init 0 of 2 id 7", "abort"));
}

// Its memory may be in use, so it is left alone.
TEST_F(NcclLinkTest, ACallThatGoesOnIsNotPulledAway) {
  Link one = link(0, 2);
  fake_->holds = true;
  std::thread caller([&] { one.all_gather(nullptr, nullptr, 1, nullptr); });
  while (fake_->held == 0) std::this_thread::yield();
  EXPECT_FALSE(one.abort("rank 1: gone", std::chrono::milliseconds(20)));
  EXPECT_EQ(one.trouble(), "");
  fake_->holds = false;
  caller.join();
  EXPECT_THAT(fake_->calls, ::testing::Not(::testing::Contains("abort")));
}

}  // namespace
}  // namespace skiff::nccl
