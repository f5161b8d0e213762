// ops/cuda/linear/line_walk.h -- the part of a line of chunks that a block of a streamed GEMM has.
//
// A line is the chunks of all tiles of all jobs, one after the other. A block has neighbouring
// ones: the end of a tile, whole tiles, and the beginning of one. Its tiles follow each other, so
// they are counted; to divide for each would take a warp as long as a chunk.
#pragma once
#include <algorithm>

namespace skiff::cuda::streamed {

// Chunks [begin, end) of a job's tile.
struct LineSlice {
  int job, tile, begin, end;
};

class LineWalk {
 public:
  constexpr LineWalk() = default;
  // Chunks [at, end) of the line of tiles from `first_tile` on, counted over all jobs of `tiles`
  // each. A tile has `chunks` chunks.
  constexpr LineWalk(int first_tile, int tiles, int chunks, int at, int end)
      : at_(at), end_(end), begin_(at % chunks) {
    const int tile = first_tile + at / chunks;
    job_ = tile / tiles;
    tile_ = tile % tiles;
  }

  constexpr bool ended() const { return at_ >= end_; }
  // Where the next slice's tile begins on the line.
  constexpr int tile_begin() const { return at_ - begin_; }

  // The next slice, while !ended(). Tiles and chunks are given again, so that a thread need not
  // hold them in registers.
  constexpr LineSlice next(int tiles, int chunks) {
    const int first = tile_begin();
    const LineSlice slice = {job_, tile_, begin_, std::min(chunks, end_ - first)};
    at_ = first + slice.end;
    begin_ = 0;
    if (++tile_ == tiles) tile_ = 0, ++job_;
    return slice;
  }

 private:
  int at_ = 0, end_ = 0, begin_ = 0, job_ = 0, tile_ = 0;
};

}  // namespace skiff::cuda::streamed
