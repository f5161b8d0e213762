#include "apps/splitting_flags.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/load_error.h"

namespace skiff::apps {
namespace {

using testing::HasSubstr;

peer::Settings settings(std::vector<std::string> words) {
  words.insert(words.begin(), "model");
  return splitting_settings(Args(kServe, words));
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    settings(words);
  } catch (const UsageError& error) {
    return error.what();
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(SplittingFlags, EachRoleHasItsOwn) {
  EXPECT_EQ(settings({}).role, peer::Role::kMixed);
  const peer::Settings p = settings({"--splitwise-role", "prefill", "--pd-comm-port", "7013",
                                     "--pd-buffer-size", "1.5", "--pd-lease", "9"});
  EXPECT_EQ(p.role, peer::Role::kPrefill);
  EXPECT_EQ(p.listen, (peer::Address{"127.0.0.1", 7013}));
  EXPECT_EQ(p.buffer_gb, 1.5);
  EXPECT_EQ(p.lease_seconds, 9);
  const peer::Settings d =
      settings({"--splitwise-role=decode", "--innode-prefill-ports", "7013,7014", "--prefill-peers",
                "node-1:80", "--prefill-peers", "[::1]:81", "--pd-wait", "3"});
  EXPECT_EQ(d.role, peer::Role::kDecode);
  EXPECT_EQ(d.wait_seconds, 3);
  EXPECT_THAT(d.prefills, testing::ElementsAre(
                              peer::Address{"node-1", 80}, peer::Address{"::1", 81},
                              peer::Address{"127.0.0.1", 7013}, peer::Address{"127.0.0.1", 7014}));
}

TEST(SplittingFlags, WhatBelongsToAnotherRoleIsRefused) {
  EXPECT_THAT(refusal({"--pd-comm-port", "7013"}), HasSubstr("--splitwise-role prefill"));
  EXPECT_THAT(refusal({"--splitwise-role=prefill", "--pd-wait=3"}), HasSubstr("decode"));
  EXPECT_THAT(refusal({"--splitwise-role=decode", "--pd-lease=3"}), HasSubstr("prefill"));
  EXPECT_THAT(refusal({"--pd-comm-key-file=x"}), HasSubstr("--pd-comm-key-file"));
}

TEST(SplittingFlags, TheWaysOfBlocksAreNamed) {
  const auto shares = [](const char* ways) {
    return settings({"--splitwise-role=decode", "--cache-transfer-protocol", ways}).shares_memory;
  };
  EXPECT_TRUE(settings({"--splitwise-role=prefill"}).shares_memory);
  for (const char* with : {"ipc", "ipc,rdma", "rdma,ipc", "tcp,ipc"}) EXPECT_TRUE(shares(with));
  for (const char* without : {"tcp", "rdma", "rdma,tcp"}) EXPECT_FALSE(shares(without));
  for (const char* wrong : {"", "ipc,", "shm", "IPC"})
    EXPECT_THAT(refusal({"--splitwise-role=decode", "--cache-transfer-protocol", wrong}),
                HasSubstr("--cache-transfer-protocol"))
        << wrong;
}

TEST(SplittingFlags, AddressesAreChecked) {
  for (const char* wrong : {"host", "host:", ":80", "host:0", "host:65536", "host:8x"})
    EXPECT_THAT(refusal({"--splitwise-role=decode", "--prefill-peers", wrong}),
                HasSubstr("--prefill-peers"))
        << wrong;
  for (const char* wrong : {"x", "80,", ",80", "0", "80;81"})
    EXPECT_THAT(refusal({"--splitwise-role=decode", "--innode-prefill-ports", wrong}),
                HasSubstr("--innode-prefill-ports"))
        << wrong;
}

TEST(SplittingFlags, TheKeyIsTheFilesFirst) {
  const std::string path = fmt::format("{}splitting_key_{}", testing::TempDir(), getpid());
  std::ofstream(path) << "# both sides\nsecret\nother\n";
  EXPECT_EQ(settings({"--splitwise-role=decode", "--pd-comm-key-file", path}).key, "secret");
  EXPECT_THAT(refusal({"--splitwise-role=decode", "--pd-comm-key-file", path + "x"}),
              HasSubstr("--pd-comm-key-file"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace skiff::apps
