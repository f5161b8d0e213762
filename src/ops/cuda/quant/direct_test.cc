// How products of a few rows are divided among warps: a pure function.
#include "ops/cuda/quant/direct_args.h"

#include <gtest/gtest.h>

namespace skiff::cuda::direct {
namespace {

constexpr int kOnH200 = kBlocks * 132;

int split(int items, int chunks) { return split_of(items, chunks, std::min(items, kOnH200)); }

// The shapes of a rank of four of DeepSeek-R1, and of Llama-3.1-8B.
TEST(DirectSplit, TheSlowestWarpHasTheLeastToDo) {
  EXPECT_EQ(split(132, 56), 8);   // latents: 2112 x 7168, an item for each block
  EXPECT_EQ(split(384, 12), 4);   // queries: 6144 x 1536, two items a block
  EXPECT_EQ(split(512, 56), 4);   // eight experts' gates: 64 x 7168 each
  EXPECT_EQ(split(3584, 4), 1);   // eight experts' down projections: 7168 x 512 each
  EXPECT_EQ(split(256, 112), 8);  // 4096 x 14336
  EXPECT_EQ(split(1792, 32), 1);  // the gates of 14336 x 4096: seven warps have an item each
}

// Whatever the shape: a power of two, and no warp has more to do than if items were not divided.
TEST(DirectSplit, IsAPowerOfTwoAndNeverLoses) {
  for (int items = 1; items < 6000; items += 37)
    for (int chunks = 1; chunks < 130; chunks += 3) {
      const int s = split(items, chunks), of_block = (items + kOnH200 - 1) / kOnH200;
      ASSERT_TRUE(s == 1 || s == 2 || s == 4 || s == kWarps) << s;
      const auto most = [&](int warps) {
        const int at_once = kWarps / warps;
        return (of_block + at_once - 1) / at_once * ((chunks + warps - 1) / warps);
      };
      ASSERT_LE(most(s), most(1)) << items << " items of " << chunks << " chunks";
    }
}

}  // namespace
}  // namespace skiff::cuda::direct
