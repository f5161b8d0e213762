#include "ops/cuda/quant/float8_shape.h"

#include <gtest/gtest.h>

namespace skiff::cuda {
namespace {

constexpr DType kF32 = DType::kF32, kF8 = DType::kF8E4M3;

WeightFormat blocks() {
  return {.dtype = kF8,
          .block_out = 128,
          .block_in = 128,
          .scale = kF32,
          .input = InputFormat{kF8, InputFormat::kGroups}};
}

WeightFormat channels() {
  return {
      .dtype = kF8, .block_out = 1, .scale = kF32, .input = InputFormat{kF8, InputFormat::kToken}};
}

TEST(Float8Channels, KeepsMatricesOfWholeColumns) {
  EXPECT_TRUE(keeps_float8_channels(channels(), 0, 16, 128));
  EXPECT_TRUE(keeps_float8_channels(channels(), 0, 4096, 14336));
  EXPECT_FALSE(keeps_float8_channels(channels(), 0, 8, 128));
  EXPECT_FALSE(keeps_float8_channels(channels(), 0, 16, 192));
  EXPECT_FALSE(keeps_float8_channels(channels(), 4, 16, 128));
}

TEST(Float8Channels, KeepsNoOtherFormat) {
  EXPECT_FALSE(keeps_float8_channels(blocks(), 0, 256, 256));
  EXPECT_FALSE(keeps_float8_rows(channels(), 0, 256, 256));
  WeightFormat format = channels();
  format.input.reset();
  EXPECT_FALSE(keeps_float8_channels(format, 0, 256, 256));
  format = channels();
  format.input->scales = InputFormat::kStatic;
  EXPECT_FALSE(keeps_float8_channels(format, 0, 256, 256));
  format = channels();
  format.block_out = 0;
  EXPECT_FALSE(keeps_float8_channels(format, 0, 256, 256));
  format = channels();
  format.scale = DType::kBF16;
  EXPECT_FALSE(keeps_float8_channels(format, 0, 256, 256));
}

// Kernels read the scales of whole tiles.
TEST(Float8Channels, HasScalesOfWholeTiles) {
  const Float8Channels odd = {272, 640};
  EXPECT_EQ(odd.scales(), 384);
  const auto elements = static_cast<size_t>(272 * 640);
  EXPECT_EQ(float8_places(odd, false).scales, elements);
  EXPECT_EQ(float8_places(odd, false).end, elements + 1536);
  EXPECT_EQ(float8_places(odd, true).end, elements + 1536 + 1280);
}

TEST(Float8Rows, KeepsMatricesOfWholeColumns) {
  EXPECT_TRUE(keeps_float8_rows(blocks(), 0, 16, 128));
  EXPECT_TRUE(keeps_float8_rows(blocks(), 0, 2112, 7168));
  EXPECT_FALSE(keeps_float8_rows(blocks(), 0, 8, 128));
  EXPECT_FALSE(keeps_float8_rows(blocks(), 0, 16, 192));
}

// A stack may be multiplied gated, where each half must have whole blocks.
TEST(Float8Rows, KeepsStacksOfPairsOfBlocks) {
  EXPECT_TRUE(keeps_float8_rows(blocks(), 64, 256, 128));
  EXPECT_TRUE(keeps_float8_rows(blocks(), 1, 2560, 1536));
  EXPECT_FALSE(keeps_float8_rows(blocks(), 64, 384, 128));
  EXPECT_FALSE(keeps_float8_rows(blocks(), 64, 272, 128));
  EXPECT_FALSE(keeps_float8_rows(blocks(), 64, 256, 192));
}

TEST(Float8Rows, KeepsNoOtherFormat) {
  for (const int64_t experts : {0, 4}) {
    WeightFormat format = blocks();
    format.input.reset();
    EXPECT_FALSE(keeps_float8_rows(format, experts, 256, 256));
    format = blocks();
    format.block_out = 1;
    EXPECT_FALSE(keeps_float8_rows(format, experts, 256, 256));
    format = blocks();
    format.input->scales = InputFormat::kToken;
    EXPECT_FALSE(keeps_float8_rows(format, experts, 256, 256));
    format = blocks();
    format.scale = DType::kBF16;
    EXPECT_FALSE(keeps_float8_rows(format, experts, 256, 256));
  }
}

// A stack has the elements and the scales of all matrices; parts begin at multiples of 256 bytes.
TEST(Float8Rows, CountsEveryMatrix) {
  constexpr int64_t kOut = 512, kIn = 640;
  for (const int64_t experts : {0, 1, 3, 64}) {
    const Float8Rows rows = {experts, kOut, kIn};
    const int64_t matrices = experts > 0 ? experts : 1;
    EXPECT_EQ(rows.scale_stride(), 8);
    EXPECT_EQ(rows.scale_rows(), 4);
    const auto up = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    const int64_t want = up(matrices * kOut * kIn) + up(matrices * 4 * 8 * 4);
    EXPECT_EQ(float8_rows_bytes(rows, false), static_cast<size_t>(want));
    EXPECT_EQ(float8_rows_bytes(rows, true), static_cast<size_t>(want + up(kOut * 4)));
  }
}

}  // namespace
}  // namespace skiff::cuda
