// ops/cuda/attention/decode_kernel.cuh -- attention of few rows over a long context: split-KV by
// equal shares (plan.h). Blocks are persistent. One warp is the TMA producer; four work on a
// quarter of every tile each, 16 positions, with softmaxes of their own that are merged only at the
// end of a head. The query vectors of a kv head are the 16 rows of an mma.
#pragma once
#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/decode_bytes.cuh"
#include "ops/cuda/attention/decode_combine.cuh"
#include "ops/cuda/attention/decode_compute.cuh"
#include "ops/cuda/attention/decode_copy.cuh"
#include "ops/cuda/attention/decode_nibbles.cuh"
#include "ops/cuda/attention/decode_padding.cuh"
#include "ops/cuda/attention/decode_pieces.cuh"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda::decode {

template <class S, bool kPieces>
__device__ void attend_tiles(const DecodeArgs& d, Shared<S>& shared) {
  int stage = 0;
  uint32_t phase = 0;
  Softmax<S> s;
  bool last = false;
  for (int number = 0; !last; ++number) {
    barrier_wait(shared_address(&shared.full[stage]), phase);
    const Run run = shared.runs[number % S::kRuns];
    last = run.last;
    begin_run(d, run, s);
    const int seen = first_seen(run.share, d.args.window);
    int t0 = (run.share.first_tile + run.first) * kTile + part_of_warp<S>().quarter * 16;
    int pieces = 0;  // pieces that have ended
    for (int tile = 0; tile < run.tiles; ++tile, t0 += kTile) {
      barrier_wait(shared_address(&shared.full[stage]), phase);
      if (t0 < run.share.kv_len && t0 + 16 > seen) {
        attend_16(d, run, s, t0, shared, stage);
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&shared.empty[stage]));
      if (++stage == S::kStages) {
        stage = 0;
        phase ^= 1;
      }
      if constexpr (kPieces) {
        const int next = run.share.first_tile + run.first + tile + 1;
        if (!begins_piece(next, d.piece) && tile + 1 < run.tiles) continue;
        end_piece(d, run, pieces++, s, shared);
        begin_piece(s);
      }
    }
    if constexpr (!kPieces) end_run(d, run, s, shared);
  }
}

template <class S, bool kPieces>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    decode_kernel(const __grid_constant__ DecodeArgs d, const __grid_constant__ CUtensorMap k,
                  const __grid_constant__ CUtensorMap v) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // Attention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<S>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), S::kWarps);
    }
    barrier_init_done();
    prefetch_map(&k);
    prefetch_map(&v);
  }
  __syncthreads();
  // Plan and page table were written before the last kernel that triggers its dependents after its
  // own wait, so they are visible here.
  TileWalk<kPieces> walk(d);
  if (threadIdx.x >= S::kComputing) {
    Run run;
    if (walk.next(run)) copy_tiles<S, kPieces>(d, walk, run, k, v, shared);
    return;
  }
  wait_for_previous();
  let_next_start();
  if (walk.any()) attend_tiles<S, kPieces>(d, shared);
  clear_padding<S>(d);
#endif
}

template <class S>
void start(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(d.blocks)),
                      .block = dim3(S::kThreads),
                      .shared = sizeof(Shared<S>),
                      .stream = stream};
  auto kernel = decode_kernel<S, false>;
  if constexpr (S::kQuantized) {  // others have start_invariant_decode()
    if (d.piece > 0) kernel = decode_kernel<S, true>;
  }
  allow_shared(kernel, how.shared);
  launch(kernel, how, d, k, v);
}

// Starts the kernel for a cache of these elements.
template <KvElement kElement>
void start_for(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v,
               cudaStream_t stream) {
  if (d.args.head_dim == 64) start<Shape<64, kElement>>(d, k, v, stream);
  if (d.args.head_dim == 128) start<Shape<128, kElement>>(d, k, v, stream);
  if (d.args.head_dim == 256) start<Shape<256, kElement>>(d, k, v, stream);
}

}  // namespace skiff::cuda::decode
