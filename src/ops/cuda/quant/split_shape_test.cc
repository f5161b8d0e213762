#include "ops/cuda/quant/split_shape.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace skiff::cuda::atoms {
namespace {

constexpr int kMultiprocessors = 132;
// Clusters of so many blocks that fit an H200 at once, one block on a multiprocessor.
constexpr ClusterPlaces kPlaces = {0, 132, 66, 42, 32, 24, 18, 16, 15};

TEST(SplitShape, DividesWhatThereIs) {
  for (const int rows : {32, 64, 128})
    for (const int tiles : {1, 2, 17, 48, 56, 300})
      for (const int jobs : {1, 3})
        for (const int chunks : {1, 2, 7, 56}) {
          const SplitShape shape = split_shape(rows, tiles, jobs, chunks, kPlaces);
          EXPECT_EQ(tiles % shape.tiles, 0);
          EXPECT_LE(shape.splits, chunks);
          EXPECT_GT(kPlaces[static_cast<size_t>(shape.splits)], 0);
        }
}

// 17 tiles of 56 chunks: alone each would take 56 chunks on 17 of 132 multiprocessors.
TEST(SplitShape, FewLongTilesAreShared) {
  const SplitShape shape = split_shape(128, 17, 1, 56, kPlaces);
  EXPECT_EQ(shape.tiles, 1);
  EXPECT_GE(shape.splits, 4);
  EXPECT_LE(17, kPlaces[static_cast<size_t>(shape.splits)]);  // one round
  const WaysToCut others = ways_to_cut(128, 17, 56, kMultiprocessors);
  EXPECT_LT(shape.cost, std::min(others.whole, others.cut));
}

TEST(SplitShape, ManyTilesAreNot) { EXPECT_EQ(split_shape(32, 1'320, 1, 32, kPlaces).splits, 1); }

// A device without clusters has places for single blocks only.
TEST(SplitShape, ClustersThatDoNotFitAreNotChosen) {
  const ClusterPlaces alone = {0, kMultiprocessors};
  EXPECT_EQ(split_shape(128, 17, 1, 56, alone).splits, 1);
}

}  // namespace
}  // namespace skiff::cuda::atoms
