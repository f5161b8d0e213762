#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tensor/convert.h"
#include "tensor/memory.h"
#include "tensor/out_of_memory.h"

namespace skiff {
namespace {

TEST(Convert, EveryHalfRoundTrips) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const F16 half{static_cast<uint16_t>(bits)};
    const float wide = to_float(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(wide))));
    } else {
      ASSERT_EQ(to_f16(wide).bits, half.bits) << bits;
    }
    const BF16 brain{static_cast<uint16_t>(bits)};
    if (!std::isnan(to_float(brain))) {
      ASSERT_EQ(to_bf16(to_float(brain)).bits, brain.bits);
    }
  }
}

// Nearest, ties to even: no other half may be closer, and at equal distance the even one wins.
TEST(Convert, RoundsToNearestEven) {
  std::mt19937 rng(3);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::ldexp(static_cast<float>(static_cast<int32_t>(rng())),
                               -45 + static_cast<int>(rng() % 30));
    const F16 half = to_f16(x);
    const double error = std::fabs(double{x} - double{to_float(half)});
    for (int step : {-1, 1}) {
      const F16 other{static_cast<uint16_t>(half.bits + step)};
      const float value = to_float(other);
      if (!std::isfinite(value) || (value < 0) != (x < 0)) continue;
      const double rival = std::fabs(double{x} - double{value});
      ASSERT_LE(error, rival);
      if (error == rival) {
        ASSERT_EQ(half.bits & 1, 0);
      }
    }
  }
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);  // halfway beyond the largest half
  EXPECT_EQ(to_f16(65519.0f).bits, 0x7bff);
}

TEST(Tensor, ViewsAddressTheRightElements) {
  std::vector<float> data(60);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const Tensor t = host_tensor(data.data(), DType::kF32, {6, 10});
  const Tensor cut = t.row_range(2, 3).col_range(4, 5);
  EXPECT_EQ(cut.rows(), 3);
  EXPECT_EQ(cut.cols(), 5);
  EXPECT_FALSE(cut.contiguous());
  EXPECT_EQ(cut.row<float>(1)[2], 36.0f);
  EXPECT_EQ(t.reshaped({2, 3, 10}).cols(), 30);
  EXPECT_DEATH((void)t.as<int32_t>(), "tensor is float32, not int32");
  EXPECT_DEATH((void)t.row_range(4, 3), "rows");
}

TEST(DType, OnlyWholeBytesHaveASize) {
  EXPECT_EQ(bytes(DType::kI64), 8u);
  EXPECT_EQ(bytes(DType::kI8), 1u);
  EXPECT_EQ(byte_size(DType::kBF16, 7), 14u);
  for (const DType dtype : {DType::kI4, DType::kU4, DType::kF4E2M1}) {
    EXPECT_EQ(bits(dtype), 4);
    EXPECT_EQ(byte_size(dtype, 6), 3u);
    EXPECT_DEATH((void)bytes(dtype), "not a whole number of bytes");
    EXPECT_DEATH((void)byte_size(dtype, 7), "7 elements of");
  }
}

TEST(Tensor, ViewsOfHalfBytesBeginAtAByte) {
  const Buffer buffer({}, 6 * 10 / 2);
  const Tensor t = buffer.view(DType::kU4, {6, 10});
  EXPECT_EQ(static_cast<std::byte*>(t.row_range(3, 2).data) - buffer.data(), 15);
  EXPECT_EQ(static_cast<std::byte*>(t.row_range(3, 2).col_range(4, 3).data) - buffer.data(), 17);
  EXPECT_DEATH((void)t.col_range(5, 2), "5 elements of uint4");
  const Tensor odd = buffer.view(DType::kU4, {4, 7});
  EXPECT_EQ(static_cast<std::byte*>(odd.row_range(2, 1).data) - buffer.data(), 7);
  EXPECT_DEATH((void)odd.row_range(1, 2), "7 elements of uint4");
  EXPECT_DEATH((void)odd.col_range(2, 2), "rows 7 elements of uint4 apart");
  EXPECT_DEATH((void)buffer.view(DType::kU4, {3, 5}), "15 elements of uint4");
  EXPECT_DEATH((void)buffer.view(DType::kU4, {6, 12}), "36 bytes at 0 of 30");
}

TEST(Arena, GivesTheSameAddressesAgainAndKnowsItsPeak) {
  Arena arena(Buffer(Device{}, 4096));
  const Tensor a = arena.take(DType::kF32, {3, 5});
  const Tensor b = arena.take(DType::kBF16, {7, 9});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % kTensorAlign, 0u);
  arena.reset();
  EXPECT_EQ(arena.take(DType::kF32, {3, 5}).data, a.data);
  EXPECT_EQ(arena.take(DType::kBF16, {7, 9}).data, b.data);
  EXPECT_EQ(arena.peak(), 192u);
  EXPECT_DEATH((void)arena.take(DType::kF32, {1000, 2}), "bytes at");
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kAllocatorEndsTheProcess = true;
#else
constexpr bool kAllocatorEndsTheProcess = false;
#endif

TEST(Buffer, MoreThanTheSystemHasIsRefusedWithItsSize) {
  if (kAllocatorEndsTheProcess) GTEST_SKIP() << "sanitizers' allocators refuse no size";
  constexpr size_t kBytes = size_t{1} << 60;
  try {
    const Buffer buffer(Device{}, kBytes);
    FAIL() << "an exbibyte was allocated";
  } catch (const OutOfHostMemory& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot allocate 1152921504606846976 bytes of host memory");
  }
}

TEST(Buffer, MovesOwnership) {
  Buffer a(Device{}, 100);
  const void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  // NOLINTNEXTLINE(bugprone-use-after-move): that nothing is left in it is what is tested.
  EXPECT_EQ(a.data(), nullptr);
}

}  // namespace
}  // namespace skiff
