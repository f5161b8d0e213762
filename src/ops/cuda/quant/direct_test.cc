// How products of a few rows are divided among warps: a pure function.
#include "ops/cuda/quant/direct_args.h"

#include <gtest/gtest.h>

namespace skiff::cuda::direct {
namespace {

constexpr int kOnH200 = 132, kWarps = kFourDivision.warps;

int split(int items, int chunks) {
  return split_of(items, chunks, std::min(items, kOnH200), kWarps);
}

// Shapes of Llama-3.1-8B and ERNIE-4.5-21B-A3B, whose every split was measured.
TEST(DirectSplit, TheSlowestWarpHasTheLeastToDo) {
  EXPECT_EQ(split(512, 64), 4);   // 8192 x 8192
  EXPECT_EQ(split(384, 32), 4);   // 6144 x 4096
  EXPECT_EQ(split(256, 32), 4);   // 4096 x 4096
  EXPECT_EQ(split(256, 112), 8);  // 4096 x 14336
  EXPECT_EQ(split(1792, 32), 1);  // the gates of 14336 x 4096: fourteen warps have an item each
  EXPECT_EQ(split(1152, 20), 1);  // six experts' gates: 1536 x 2560 each
  EXPECT_EQ(split(960, 12), 1);   // six experts' down projections: 2560 x 1536 each
}

// Whatever the shape: a power of two, and no warp has more to do than if items were not divided.
TEST(DirectSplit, IsAPowerOfTwoAndNeverLoses) {
  for (int items = 1; items < 6000; items += 37)
    for (int chunks = 1; chunks < 130; chunks += 3) {
      const int s = split(items, chunks), of_block = (items + kOnH200 - 1) / kOnH200;
      ASSERT_TRUE(s == 1 || s == 2 || s == 4 || s == 8 || s == kWarps) << s;
      const auto most = [&](int warps) {
        const int at_once = kWarps / warps;
        return (of_block + at_once - 1) / at_once * ((chunks + warps - 1) / warps);
      };
      ASSERT_LE(most(s), most(1)) << items << " items of " << chunks << " chunks";
    }
}

// Shared memory of a block with so many inputs of one row, its sums and what a device keeps of each
// block included.
size_t shared_of_block(const Division& d, int64_t in) {
  return shared_bytes(d, scaled_x_bytes(1, static_cast<int>((in + 127) / 128))) +
         static_cast<size_t>(d.warps) * 1024 + 1024;
}

TEST(DirectDivision, BlocksAreAloneOrFitBesideOthers) {
  constexpr size_t kMultiprocessor = 228 << 10;  // of an H200
  for (const Division& alone : {kFourDivision, kEightDivision}) {
    EXPECT_GT(2 * shared_of_block(alone, 256), kMultiprocessor);
    for (const Division& beside : {kFourBeside, kEightBeside})
      for (const int64_t in : {512, 2048, 7168})  // a shared expert's, beside experts' as wide
        if (alone.ring_bytes <= 4 << 10) {
          EXPECT_LE(shared_of_block(alone, in) + shared_of_block(beside, in), kMultiprocessor);
        }
  }
}

}  // namespace
}  // namespace skiff::cuda::direct
