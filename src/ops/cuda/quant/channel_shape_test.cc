// How products by weights with a scale for each output are divided among blocks: a pure function.
#include "ops/cuda/quant/channel_shape.h"

#include <gtest/gtest.h>

namespace skiff::cuda::channels {
namespace {

constexpr int kOnH200 = 132;

ChannelShape shape(int64_t rows, int64_t features, int64_t in) {
  return channel_shape(rows, features, in, kOnH200, false);
}

// The four weights of a layer of Llama-3.1-8B, and a large one, whose every split was measured.
TEST(ChannelShape, MultiprocessorsHaveTheLeastToDo) {
  for (const int64_t rows : {16, 128}) {
    const int n = static_cast<int>(rows);
    EXPECT_EQ(shape(rows, 6144, 4096), (ChannelShape{n, 4}));
    EXPECT_EQ(shape(rows, 4096, 4096), (ChannelShape{n, 4}));
    EXPECT_EQ(shape(rows, 28672, 4096), (ChannelShape{n, 1}));
    EXPECT_EQ(shape(rows, 4096, 14336), (ChannelShape{n, 4}));
    EXPECT_EQ(shape(rows, 8192, 8192), (ChannelShape{n, 2}));
  }
}

TEST(ChannelShape, AJobHoldsTheRowsUpToTheMost) {
  for (int64_t rows = 1; rows < 600; ++rows) {
    const ChannelShape s = shape(rows, 512, 256);
    EXPECT_TRUE(s.rows >= rows || s.rows == kMostRows) << rows;
    EXPECT_TRUE(s.rows == 8 || s.rows / 2 < rows) << rows;
  }
}

// Each block of a cluster has at least two chunks.
TEST(ChannelShape, NoBlockIsWithoutWork) {
  for (int64_t chunks = 1; chunks < 200; ++chunks)
    for (const int64_t features : {16, 144, 1024, 40000}) {
      const int splits = shape(40, features, chunks * kColumns).splits;
      ASSERT_TRUE(splits == 1 || int64_t{2} * splits <= chunks) << chunks << ", " << features;
      ASSERT_TRUE(splits == 1 || splits == 2 || splits == kMostSplits) << splits;
    }
}

TEST(ChannelShape, OneOrderFollowsFromTheWeight) {
  for (const int64_t features : {144, 4096, 6144, 28672})
    for (const int64_t in : {128, 1408, 4096, 14336}) {
      const int splits = channel_shape(1, features, in, kOnH200, true).splits;
      for (const int64_t rows : {8, 64, 65, 128, 129, 5000})
        EXPECT_EQ(channel_shape(rows, features, in, kOnH200, true).splits, splits);
    }
}

}  // namespace
}  // namespace skiff::cuda::channels
