#include "ops/cuda/linear/tuned.h"

#include <gtest/gtest.h>

#include <random>

namespace skiff::cuda {
namespace {

TunedProducts some(size_t products) {
  std::mt19937_64 random(products);
  TunedProducts tuned{.library = 130100, .capability = 90, .products = {}};
  for (size_t i = 0; i < products; ++i) {
    TunedProduct& p = tuned.products.emplace_back();
    p.key = {.rows = int64_t{8} << i,
             .in = static_cast<int64_t>(random() >> 1),
             .features = static_cast<int64_t>(random() >> 1),
             .x_stride = 4096,
             .out_stride = 1,
             .out_type = static_cast<int32_t>(i % 3)};
    for (uint64_t& word : p.algorithm) word = random();
  }
  return tuned;
}

TEST(Tuned, ComesBackFromBytes) {
  for (size_t n : {0u, 1u, 7u}) EXPECT_EQ(tuned_of(to_bytes(some(n))), some(n));
}

TEST(Tuned, RefusesOtherBytes) {
  const std::vector<std::byte> good = to_bytes(some(3));
  EXPECT_FALSE(tuned_of({}));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(tuned_of(std::span(good).first(size))) << size << " bytes";
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 8);
  EXPECT_FALSE(tuned_of(longer));
  for (size_t at : {0u, 7u, 24u, 31u}) {  // the magic number, and the number of products
    std::vector<std::byte> other = good;
    other[at] ^= std::byte{0x40};
    EXPECT_FALSE(tuned_of(other)) << "byte " << at;
  }
}

}  // namespace
}  // namespace skiff::cuda
