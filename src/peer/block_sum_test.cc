#include "peer/block_sum.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace skiff::peer {
namespace {

std::vector<std::byte> random_bytes(size_t n) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(BlockSum, PiecesGiveTheSumOfTheWhole) {
  const auto bytes = random_bytes(100000);
  const std::span whole(bytes);
  BlockSum sum;
  for (int round = 0; round < 2; ++round) {
    sum.begin();
    for (size_t at = 0, n = 1; at < whole.size(); at += n, n = n * 3 + 1)
      sum.add(whole.subspan(at, std::min(n, whole.size() - at)));
    EXPECT_EQ(sum.sum(), sum_of(whole));
  }
  sum.add(whole.first(1));
  EXPECT_NE(sum.sum(), sum_of(whole));
}

TEST(BlockSum, ACopyIsTheSameBytes) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}, size_t{128 << 10}, size_t{300001}}) {
    const auto from = random_bytes(n);
    std::vector<std::byte> to(n);
    EXPECT_EQ(copy_and_sum(from, to), sum_of(from));
    EXPECT_EQ(to, from);
  }
}

}  // namespace
}  // namespace skiff::peer
