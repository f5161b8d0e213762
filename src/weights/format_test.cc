#include "weights/format.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

TEST(WeightFormat, IsDescribedForMessages) {
  EXPECT_EQ(describe({.dtype = DType::kBF16}), "bfloat16");
  EXPECT_EQ(
      describe({.dtype = DType::kF8E4M3, .block_out = 128, .block_in = 128, .scale = DType::kF32}),
      "float8_e4m3 with a float32 scale for each 128 x 128");
  EXPECT_EQ(
      describe({.dtype = DType::kU4, .block_out = 1, .scale = DType::kF16, .zero = DType::kU4}),
      "uint4 with a float16 scale and a uint4 zero point for each 1 x all");
}

}  // namespace
}  // namespace skiff
