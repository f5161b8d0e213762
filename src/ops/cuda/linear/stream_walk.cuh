// ops/cuda/linear/stream_walk.cuh -- which tiles, and which chunks of them, a block works on.
#pragma once
#include "ops/cuda/linear/stream_args.cuh"

namespace skiff::cuda::streamed {

// Chunks [begin, end) of one tile.
struct TileSlice {
  int job, tile, begin, end;
  int first_block, last_block;  // all blocks that work on the tile
};

// Where stream-K, with `cut` chunks for each block, ends the piece of a tile that begins at chunk
// `begin`.
__device__ __forceinline__ int end_of_piece(int tile, int begin, int chunks, int cut) {
  const int first = tile * chunks;
  return min(chunks, ((first + begin) / cut + 1) * cut - first);
}

// This block's slices, in order: an equal part of all chunks (stream-K), or whole tiles.
class SliceWalk {
 public:
  __device__ SliceWalk(const StreamArgs& a, int jobs) : a_(a), tiles_(jobs * a.tiles) {
    if (!a.split) return;
    per_block_ = (tiles_ * a.chunks + gridDim.x - 1) / gridDim.x;
    at_ = blockIdx.x * per_block_;
    end_ = min(tiles_ * a.chunks, at_ + per_block_);
  }
  __device__ bool next(TileSlice* s) {
    int t;
    if (a_.split) {
      if (at_ >= end_) return false;
      t = at_ / a_.chunks;
      const int first = t * a_.chunks;
      s->begin = at_ - first;
      s->end = min(a_.chunks, end_ - first);
      s->first_block = first / per_block_;
      s->last_block = (first + a_.chunks - 1) / per_block_;
      at_ = first + s->end;
    } else {
      t = blockIdx.x + at_++ * gridDim.x;
      if (t >= tiles_) return false;
      s->begin = 0;
      s->end = a_.chunks;
      s->first_block = s->last_block = blockIdx.x;
    }
    s->job = t / a_.tiles;
    s->tile = t % a_.tiles;
    return true;
  }

 private:
  const StreamArgs& a_;
  int tiles_, per_block_ = 0, at_ = 0, end_ = 0;
};

template <int N>
__device__ Job job_of(const StreamArgs& a, int i) {
  if (a.jobs.jobs) return a.jobs.jobs[i];
  if (a.jobs.expert) return {a.jobs.expert[i], i, 1, 0};
  return {0, i * N, min(N, a.rows - i * N), 0};
}
template <int N>
__device__ int job_count(const StreamArgs& a) {
  if (a.jobs.jobs) return *a.jobs.count;
  return a.jobs.expert ? a.jobs.capacity : (a.rows + N - 1) / N;
}

// The chunks of this block's slices, one by one.
template <int N>
struct ChunkWalk {
  const StreamArgs& a;
  SliceWalk slices;
  TileSlice slice = {};
  Job job = {};
  int chunk = -1;
  __device__ ChunkWalk(const StreamArgs& args, int jobs) : a(args), slices(args, jobs) {}
  __device__ bool next() {
    if (++chunk < slice.end) return true;
    if (!slices.next(&slice)) {
      slice.end = chunk = 0;
      --chunk;
      return false;
    }
    job = job_of<N>(a, slice.job);
    chunk = slice.begin;
    return true;
  }
};

// A stage of the ring, and the parity of its barriers' phase in this round.
template <int kStages>
struct RingTurn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace skiff::cuda::streamed
