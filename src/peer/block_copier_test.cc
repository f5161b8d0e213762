#include "peer/block_copier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>

namespace skiff::peer {
namespace {

std::vector<std::byte> random_bytes(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(BlockCopier, JudgesEachCopy) {
  constexpr size_t kBytes = 300001;
  constexpr int kBlocks = 40;
  std::vector<std::vector<std::byte>> from, to(kBlocks, std::vector<std::byte>(kBytes));
  for (uint64_t i = 0; i < kBlocks; ++i) from.push_back(random_bytes(kBytes, i));
  std::mutex mutex;  // guards the two below
  std::map<uint64_t, bool> right;
  std::map<int, std::vector<std::byte>> put;
  {
    BlockCopier copier({.threads = 3,
                        .put =
                            [&](int host_block, std::span<const std::byte> bytes) {
                              std::lock_guard lock(mutex);
                              put[host_block].assign(bytes.begin(), bytes.end());
                            },
                        .answer =
                            [&](const BlockCopier::Job& job, bool ok) {
                              std::lock_guard lock(mutex);
                              right[job.id] = ok;
                            }});
    for (int i = 0; i < kBlocks; ++i) {
      const auto at = static_cast<size_t>(i);
      Sum sum = sum_of(from[at]);
      if (i % 5 == 0) sum.high ^= 1;
      copier.start({.id = at,
                    .memory = nullptr,
                    .from = from[at],
                    .host_block = i,
                    .to = i % 2 == 0 ? std::span(to[at]) : std::span<std::byte>(),
                    .sum = sum});
    }
  }
  ASSERT_EQ(right.size(), size_t{kBlocks});
  for (int i = 0; i < kBlocks; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(right[at], i % 5 != 0) << i;
    if (i % 2 == 0) {
      EXPECT_EQ(to[at], from[at]) << i;
    }
    EXPECT_EQ(put.contains(i), i % 2 != 0 && i % 5 != 0) << i;
    if (put.contains(i)) {
      EXPECT_EQ(put[i], from[at]) << i;
    }
  }
}

}  // namespace
}  // namespace skiff::peer
