// Blocks of random bytes in the types that the gguf package 0.19.0 reads: the hashes, printed by
// tools/quantized_checkpoints/gguf_hashes.py, are FNV-1a of what its dequantize() makes of them, as
// float32. Zeros have no sign there: the package has none for MXFP4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/load_error.h"
#include "model/gguf_blocks_testing.h"

namespace skiff::model {
namespace {

using testing::kGgufBlocks;
using testing::random_gguf_blocks;

constexpr int64_t kRows = 3, kCols = 512;
constexpr char kSixteenth = 0x2c;  // the upper byte of a float16 from 1/16 on

std::string fnv(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : std::as_bytes(std::span(values)))
    hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::vector<float> values_of(const char* type, const std::string& bytes) {
  return testing::gguf_values(type, kRows, kCols, bytes);
}

TEST(GgufBlocks, EqualTheReferenceBitForBit) {
  for (const auto& [type, halves, high, hash] : kGgufBlocks) {
    if (!hash) continue;
    std::vector<float> values =
        values_of(type, random_gguf_blocks(type, kRows * kCols, halves, kSixteenth));
    for (float& v : values) v += 0.0f;
    EXPECT_EQ(fnv(values), hash) << type;
  }
}

// The package does not read Q8_K: a float32, 256 elements, and sums that have no effect.
TEST(GgufBlocks, OfEightBitsHaveOneScale) {
  std::string bytes(kRows * kCols / 256 * 292, '\xff');
  const auto code = [](size_t i) { return static_cast<int8_t>(i * 7 % 256); };
  for (size_t block = 0; block < kRows * kCols / 256; ++block) {
    const float scale = 0.125f * static_cast<float>(block + 1);
    std::memcpy(&bytes[block * 292], &scale, sizeof scale);
    for (size_t i = 0; i < 256; ++i) bytes[block * 292 + 4 + i] = static_cast<char>(code(i));
  }
  const std::vector<float> values = values_of("Q8_K", bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t block = i / 256;
    ASSERT_EQ(values[i], 0.125f * static_cast<float>(block + 1) * code(i % 256)) << i;
  }
}

// Writers give blocks of zeros, as the rows of tokens that nobody uses have them, a scale of zero
// and leave the codes as they happen to be.
TEST(GgufBlocks, OfScaleZeroAreZeros) {
  for (const auto& [type, halves, high, hash] : kGgufBlocks) {
    const auto size = static_cast<size_t>(find_gguf_type(type)->bytes);
    std::string bytes = random_gguf_blocks(type, kRows * kCols, halves, 0);
    for (size_t at = 0; at < bytes.size(); at += size)
      for (const size_t half : halves) bytes[at + half] = 0;
    if (halves.empty()) continue;
    EXPECT_THAT(values_of(type, bytes), ::testing::Each(0.0f)) << type;
  }
}

TEST(GgufBlocks, WhoseScaleOrMinimumIsInfiniteAreRefused) {
  for (const auto& [type, halves, high, hash] : kGgufBlocks)
    for (const size_t half : halves) {
      std::string bytes = random_gguf_blocks(type, kRows * kCols, halves, kSixteenth);
      bytes[half] = 0;
      bytes[half + 1] = 0x7c;
      EXPECT_THAT([&] { values_of(type, bytes); },
                  ::testing::ThrowsMessage<LoadError>(::testing::HasSubstr(type)))
          << half;
    }
}

}  // namespace
}  // namespace skiff::model
