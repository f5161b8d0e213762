// ops/cuda/linear/stream_load.cuh -- the streamed GEMM's producers: two threads that issue TMA
// copies, one of weights and one of rows of x.
#pragma once
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/linear/tiles.h"

namespace skiff::cuda::streamed {

template <class Ring>
struct RingFiller {
  Ring ring;
  RingTurn<Ring::kStages> turn = {0, 1};  // a new barrier counts as past a phase of parity 1

  // Waits until the next stage is empty.
  __device__ int next() {
    const int stage = turn.stage;
    barrier_wait(ring.empty + 8 * stage, turn.parity);
    turn.advance();
    return stage;
  }
};

// Calls copy(ring, slice, chunk, stage) for the weights of this block's chunks. It fills the whole
// ring before griddepcontrol.wait, as far as the jobs are known. A multiprocessor holds one of
// these blocks at a time, or several with weights of four bits and few rows. The next GEMM's block
// takes its place as soon as it ends, and fills its own ring while the outputs of this GEMM and of
// the small kernels in between are handed over: the memory hardly rests.
template <int N, class Ring, class Copy>
__device__ void load_weights(const StreamArgs& a, ClaimQueue& queue, const Ring& ring, Copy copy) {
  if (a.next_at_once) let_next_start();
  bool waits = (a.jobs.jobs || a.jobs.expert) && !a.jobs_early;
  if (waits && a.jobs.known == 0) wait_for_previous(), waits = false;
  SliceWalk<N, Walker::kClaims> slices(a, queue);
  RingFiller<Ring> fill = {ring};
  for (TileSlice s;;) {
    if (waits && slices.needs_list()) wait_for_previous(), waits = false;
    if (!slices.next(&s)) return;
    for (int c = s.begin; c < s.end; ++c) copy(ring, s, c, fill.next());
  }
}

// Calls copy(ring, slice, chunk, stage) for the rows of x of this block's chunks, which the kernels
// before have written: nothing is copied before griddepcontrol.wait.
template <int N, class Ring, class Copy>
__device__ void load_rows(const StreamArgs& a, ClaimQueue& queue, const Ring& ring, Copy copy) {
  wait_for_previous();
  if (!a.next_at_once) let_next_start();
  SliceWalk<N, Walker::kThread> slices(a, queue);
  RingFiller<Ring> fill = {ring};
  for (TileSlice s; slices.next(&s);)
    for (int c = s.begin; c < s.end; ++c) copy(ring, s, c, fill.next());
}

template <int N, bool kGated>
struct WeightCopy {
  const CUtensorMap& map;
  const StreamArgs& a;

  __device__ void operator()(const StageRing<N>& ring, const TileSlice& s, int chunk,
                             int stage) const {
    const uint32_t barrier = ring.full + 8 * stage, to = ring.weights(stage);
    barrier_expect(barrier, StageRing<N>::kWeightBytes);
    if (a.packed) {
      const auto box = tile_box(s.job.expert, s.tile, chunk, a.chunks, kTileRows, kGated);
      return copy_tile(to, map, barrier, box[0], box[1], box[2], box[3], box[4], a.keep_weights);
    }
    if constexpr (kGated)
      copy_tile(to, map, barrier, chunk * kChunk, 0, 0, s.tile * (kTileRows / 16), s.job.expert,
                a.keep_weights);
    else
      copy_tile(to, map, barrier, chunk * kChunk, s.tile * kTileRows, 0, 0, s.job.expert,
                a.keep_weights);
  }
};

template <int N>
struct RowCopy {
  static constexpr int kBox = full_box_rows(N);

  const CUtensorMap& map;  // its boxes have kBox rows
  const StreamArgs& a;

  // Rows beyond those of the job are left out, in whole boxes.
  __device__ void operator()(const StageRing<N>& ring, const TileSlice& s, int chunk,
                             int stage) const {
    constexpr int kBoxBytes = kBox * StageRing<N>::kRowBytes;
    const int boxes = (s.job.rows + kBox - 1) / kBox, row = a.one_row ? 0 : s.job.first;
    const uint32_t barrier = ring.full + 8 * stage, to = ring.rows(stage);
    barrier_expect(barrier, boxes * kBoxBytes);
    for (int i = 0; i < boxes; ++i)
      copy_tile(to + i * kBoxBytes, map, barrier, chunk * kChunk, row + i * kBox);
  }
};

}  // namespace skiff::cuda::streamed
