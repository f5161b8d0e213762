// ops/cuda/linear/stream_kernel.cuh -- the kernel behind stream.h: two producer threads (TMA) and
// two consumer warpgroups (wgmma) around a ring of stages.
#pragma once
#include "ops/cuda/linear/stream_load.cuh"
#include "ops/cuda/linear/stream_multiply.cuh"
#include "ops/cuda/linear/stream_share.cuh"
#include "ops/cuda/linear/stream_store.cuh"

namespace skiff::cuda::streamed {

// sum = the slice times M rows of x.
template <bool kPieces, int M, int kSums, class Ring>
__device__ void multiply_rows(float (&sum)[kSums], const StreamArgs& a, const Ring& ring,
                              const TileSlice& s, RingTurn<Ring::kStages>& turn) {
  if constexpr (kPieces)
    multiply_pieces<M>(sum, a, ring, s, turn);
  else
    multiply<M>(sum, ring, s, turn);
}

// Multiplies by the fewest rows that hold those of the job: an expert's last job may have far fewer
// than the others.
template <int N, bool kPieces>
__device__ void multiply_job(float (&sum)[N / 2], const StreamArgs& a, const StageRing<N>& ring,
                             const TileSlice& s, RingTurn<StageRing<N>::kStages>& turn) {
  if constexpr (N > 64) {
    if (s.job.rows <= 64) return multiply_rows<kPieces, 64>(sum, a, ring, s, turn);
  }
  if constexpr (N > 128) {
    if (s.job.rows <= 128) return multiply_rows<kPieces, 128>(sum, a, ring, s, turn);
  }
  multiply_rows<kPieces, N>(sum, a, ring, s, turn);
}

template <int N, bool kGated, bool kPieces>
__device__ void consume(const StreamArgs& a, const StageRing<N>& ring, ClaimQueue& queue,
                        char* staging) {
  wait_for_previous();
  SliceWalk<N, Walker::kWarps> slices(a, queue);
  LineStaging lines(staging);
  Epilogue<N, kGated> store = {a, &lines};
  TileSlice s;
  RingTurn<StageRing<N>::kStages> turn;
  float sum[N / 2];
  while (slices.next(&s)) {
    multiply_job<N, kPieces>(sum, a, ring, s, turn);
    if constexpr (kPieces || N > kWidestSplit) {
      store.store_tile(sum, s);
    } else {
      float out[N / 2];  // only wgmma may write `sum`, or ptxas waits for each
#pragma unroll
      for (int i = 0; i < N / 2; ++i) out[i] = sum[i];
      if (s.is_cut(a) && !SharedTile<N>{a}.add(out, s)) continue;
      store.store_tile(out, s);
    }
  }
}

// kPieces: StreamArgs::cut > 0. It has kernels of its own, because the others would lose registers.
template <int N, bool kGated, bool kPieces>
__global__ void __launch_bounds__(kThreads, 1)
    stream_kernel(const __grid_constant__ CUtensorMap w_map,
                  const __grid_constant__ CUtensorMap x_map, const __grid_constant__ StreamArgs a) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // StreamedProducts::takes() nothing elsewhere
  using Ring = StageRing<N>;
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[2 * Ring::kStages];
  __shared__ ClaimQueue queue;
  char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t full = shared_address(barriers);
  const Ring ring = {shared_address(memory), full, full + 8 * Ring::kStages};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Ring::kStages; ++i) {
      barrier_init(ring.full + 8 * i, 2);
      barrier_init(ring.empty + 8 * i, kConsumers / 128);
    }
    queue.init(1 + kConsumers / 32);
    barrier_init_done();
    fence_async();
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < kConsumers / 32) {
    consume<N, kGated, kPieces>(a, ring, queue, memory + Ring::kStages * Ring::kStageBytes);
  } else if (warp == kConsumers / 32) {
    if (elected()) load_weights<N>(a, queue, ring, WeightCopy<N, kGated>{w_map, a});
  } else {
    if (elected()) load_rows<N>(a, queue, ring, RowCopy<N>{x_map, a});
  }
#endif
}

}  // namespace skiff::cuda::streamed
