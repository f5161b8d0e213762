// ops/cuda/quant/split_shape.h -- how many blocks share the inner dimension of a GEMM of packed
// weights, and when that pays: pure functions without CUDA.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace skiff::cuda::atoms {

constexpr int kMostSplits = 8;
// Element c says how many clusters of c blocks run at once.
using ClusterPlaces = std::array<int, kMostSplits + 1>;

struct SplitShape {
  int tiles = 1;                    // neighbouring tiles that a block multiplies at a time: 1 or 2
  int splits = 1;                   // blocks of a cluster, which share the inner dimension
  int64_t cost = int64_t{1} << 60;  // cycles, of which only the ratios matter
};

// Cycles of a chunk of one tile, or of two at a time, by `rows` rows of x. Measured on an H200.
constexpr int64_t chunk_cost(int64_t rows, int tiles) {
  const int64_t of_one = 560 + 5 * rows;
  return tiles == 1 ? of_one : 8 * of_one / 5;
}

constexpr int64_t rounds_of(int64_t count, int64_t at_a_time) {
  return (count + at_a_time - 1) / at_a_time;
}

// Cycles of a GEMM of `tiles` tiles in whole tiles, and cut by stream-K, whose partial sums are
// written and read again.
struct WaysToCut {
  int64_t whole, cut;
};
constexpr WaysToCut ways_to_cut(int64_t rows, int64_t tiles, int64_t chunks, int multiprocessors) {
  constexpr int64_t kReduction = 4000, kReductionOfRow = 100;
  const int64_t chunk = chunk_cost(rows, 1);
  return {rounds_of(tiles, multiprocessors) * chunks * chunk,
          rounds_of(tiles * chunks, multiprocessors) * chunk + kReduction + kReductionOfRow * rows};
}

// The best shape for `jobs` jobs of `rows` rows of x by `tiles` tiles of so many chunks. Where the
// blocks of a cluster meet costs kMeeting, and kMeetingOfRow for each row of each tile.
constexpr SplitShape split_shape(int64_t rows, int64_t tiles, int64_t jobs, int64_t chunks,
                                 const ClusterPlaces& places) {
  constexpr int64_t kMeeting = 2200, kMeetingOfRow = 3;
  SplitShape best;
  for (int at_once = 1; at_once <= 2; ++at_once) {
    if (tiles % at_once != 0) continue;
    for (int splits = 1; splits <= kMostSplits && splits <= chunks; ++splits) {
      const int64_t at_a_time = places[static_cast<size_t>(splits)];
      if (at_a_time == 0) continue;
      const int64_t each = rounds_of(chunks, splits) * chunk_cost(rows, at_once);
      const int64_t meeting = splits > 1 ? kMeeting + kMeetingOfRow * rows * at_once : 0;
      const int64_t cost = rounds_of(jobs * tiles / at_once, at_a_time) * (each + meeting);
      if (cost < best.cost) best = {at_once, splits, cost};
    }
  }
  return best;
}

}  // namespace skiff::cuda::atoms
