// ops/cuda/linear/stream_load.cuh -- the streamed GEMM's TMA producer.
#pragma once
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/linear/tiles.h"

namespace skiff::cuda::streamed {

template <int N, bool kGated>
struct Producer {
  using Ring = StageRing<N>;

  const CUtensorMap &w_map, &x_map;
  const StreamArgs& a;
  Ring ring;

  __device__ void load_weights(const TileSlice& s, const Job& job, int chunk, int stage) {
    const uint32_t barrier = ring.full + 8 * stage, to = ring.weights(stage);
    barrier_expect(barrier, Ring::kStageBytes);
    if (a.packed) {
      const auto box = tile_box(job.expert, s.tile, chunk, a.chunks, kTileRows, kGated);
      return copy_tile(to, w_map, barrier, box[0], box[1], box[2], box[3], box[4], a.keep_weights);
    }
    if constexpr (kGated)
      copy_tile(to, w_map, barrier, chunk * kChunk, 0, 0, s.tile * (kTileRows / 16), job.expert,
                a.keep_weights);
    else
      copy_tile(to, w_map, barrier, chunk * kChunk, s.tile * kTileRows, 0, 0, job.expert,
                a.keep_weights);
  }
  __device__ void load_rows(const Job& job, int chunk, int stage) {
    copy_tile(ring.rows(stage), x_map, ring.full + 8 * stage, chunk * kChunk,
              a.one_row ? 0 : job.first);
  }

  // Run by one thread. It fills the whole ring with weights before griddepcontrol.wait, and loads
  // their rows of x after it. A multiprocessor holds one of these blocks at a time. The next GEMM's
  // block takes its place as soon as it ends, and fills its own ring while the outputs of this GEMM
  // and of the small kernels in between are handed over: the memory hardly rests.
  __device__ void run() {
    if (a.next_at_once) let_next_start();
    const bool early = (!a.jobs.jobs && !a.jobs.expert) || a.jobs_early;
    if (!early) wait_for_previous();
    const int jobs = job_count<N>(a);
    ChunkWalk<N> loads(a, jobs), rows(a, jobs);
    for (int i = 0; i < Ring::kStages && loads.next(); ++i)
      load_weights(loads.slice, loads.job, loads.chunk, i);
    if (early) wait_for_previous();
    if (!a.next_at_once) let_next_start();
    for (int i = 0; i < Ring::kStages && rows.next(); ++i) load_rows(rows.job, rows.chunk, i);
    RingTurn<Ring::kStages> turn;
    while (loads.next()) {
      barrier_wait(ring.empty + 8 * turn.stage, turn.parity);
      load_weights(loads.slice, loads.job, loads.chunk, turn.stage);
      load_rows(loads.job, loads.chunk, turn.stage);
      turn.advance();
    }
  }
};

}  // namespace skiff::cuda::streamed
