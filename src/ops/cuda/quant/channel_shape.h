// ops/cuda/quant/channel_shape.h -- how the GEMM of channel_kernel.cuh is divided: a pure function
// without CUDA.
//
// A block has a tile of 128 weight rows by up to 128 rows of x, and the blocks of a cluster share
// the inner dimension: their sums meet in shared memory. That costs less than partial sums in
// device memory, and few outputs occupy all multiprocessors, which hold two blocks each. Tiles of
// 256 weight rows were not faster (docs/performance_cuda_products.md).
#pragma once
#include <algorithm>
#include <cstdint>

namespace skiff::cuda::channels {

constexpr int kColumns = 128;   // columns of a chunk: a row of it has 128 bytes
constexpr int kTileRows = 128;  // weight rows of a tile
constexpr int kMostRows = 128;  // rows of x of a job
constexpr int kMostSplits = 4;  // blocks of a cluster: of eight, few clusters fit at once

struct ChannelShape {
  int rows = 8;    // rows of x in a job: 8, 16, 32, 64 or 128
  int splits = 1;  // blocks of a cluster
  bool operator==(const ChannelShape&) const = default;
};

constexpr int64_t pieces_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

// How many blocks share the inner dimension of each of `tiles` tiles, so that the multiprocessors
// have the least to do. Where blocks meet costs about as much as kMeeting chunks. Clusters of four
// do not fit on all multiprocessors, whose groups have odd numbers of them; blocks that do not fit
// at once begin another round. Measured on an H200.
constexpr int splits_of(int64_t tiles, int64_t chunks, int multiprocessors) {
  constexpr int64_t kMeeting = 5;
  int best = 1;
  int64_t least = int64_t{1} << 60;
  for (int splits = 1; splits <= kMostSplits && int64_t{2} * splits <= chunks; splits *= 2) {
    const int64_t places = 2 * int64_t{multiprocessors} * (splits == 4 ? 10 : 11) / 11;
    const int64_t blocks = tiles * splits, rounds = pieces_of(blocks, places);
    // A multiprocessor's blocks, times `multiprocessors`: at least one, or two for each full round.
    const int64_t load =
        rounds > 1 ? 2 * rounds * multiprocessors : std::max<int64_t>(multiprocessors, blocks);
    const int64_t cost =
        load * pieces_of(chunks, splits) + (splits > 1 ? kMeeting * multiprocessors : 0);
    if (cost < least) least = cost, best = splits;
  }
  return best;
}

// The shape for `rows` rows of x by a weight [features, in]. `one_order`: splits follow from the
// weight alone, so that the order of additions does not depend on rows.
constexpr ChannelShape channel_shape(int64_t rows, int64_t features, int64_t in,
                                     int multiprocessors, bool one_order) {
  ChannelShape shape;
  while (shape.rows < rows && shape.rows < kMostRows) shape.rows *= 2;
  const int64_t jobs = one_order ? 1 : pieces_of(rows, shape.rows);
  shape.splits = splits_of(pieces_of(features, kTileRows) * jobs, in / kColumns, multiprocessors);
  return shape;
}

}  // namespace skiff::cuda::channels
