#include "ops/cuda/linear/line_walk.h"

#include <gtest/gtest.h>

#include <vector>

namespace skiff::cuda::streamed {
namespace {

// Every chunk of the line is walked once, in order, and lies in the tile that division gives.
void expect_whole_line(int first_tile, int jobs, int tiles, int chunks, int blocks) {
  const int line = (jobs * tiles - first_tile) * chunks, each = (line + blocks - 1) / blocks;
  int walked = 0;
  for (int block = 0; block < blocks; ++block) {
    const int at = block * each, end = std::min(line, at + each);
    LineWalk walk(first_tile, tiles, chunks, at, end);
    while (!walk.ended()) {
      const int begins = walk.tile_begin();
      const LineSlice s = walk.next(tiles, chunks);
      ASSERT_LT(s.begin, s.end);
      ASSERT_LE(s.end, chunks);
      ASSERT_EQ(begins, walked / chunks * chunks);
      ASSERT_EQ(s.begin, walked % chunks);
      ASSERT_EQ(s.job, (first_tile + walked / chunks) / tiles);
      ASSERT_EQ(s.tile, (first_tile + walked / chunks) % tiles);
      walked += s.end - s.begin;
      ASSERT_TRUE(s.end == chunks || walked == end) << "a slice ends with its tile or its block";
    }
    ASSERT_EQ(walked, std::max(walked, end));
  }
  ASSERT_EQ(walked, line);
}

TEST(LineWalk, CoversEveryChunkOnce) {
  for (const int jobs : {1, 2, 7})
    for (const int tiles : {1, 3, 56})
      for (const int chunks : {1, 2, 4, 56})
        for (const int blocks : {1, 5, 132, 396})
          for (const int first : {0, 1, tiles, jobs * tiles - 1}) {
            if (first >= jobs * tiles) continue;
            SCOPED_TRACE(testing::Message()
                         << jobs << " jobs of " << tiles << " tiles of " << chunks
                         << " chunks from " << first << ", " << blocks);
            ASSERT_NO_FATAL_FAILURE(expect_whole_line(first, jobs, tiles, chunks, blocks));
          }
}

TEST(LineWalk, OfNothingHasEnded) {
  EXPECT_TRUE(LineWalk().ended());
  EXPECT_TRUE(LineWalk(0, 4, 8, 96, 64).ended()) << "a block behind the end of the line";
}

}  // namespace
}  // namespace skiff::cuda::streamed
