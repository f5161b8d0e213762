// ops/cuda/linear/stream_kernel.cuh -- the kernel behind stream.h: one producer thread (TMA) and
// two consumer warpgroups (wgmma) around a ring of stages.
#pragma once
#include "ops/cuda/linear/stream_load.cuh"
#include "ops/cuda/linear/stream_multiply.cuh"
#include "ops/cuda/linear/stream_share.cuh"
#include "ops/cuda/linear/stream_store.cuh"

namespace skiff::cuda::streamed {

// sum = the slice times the job's rows: M of N, where the job has no more.
template <int N, int M>
__device__ void compute(float (&sum)[N / 2], const StreamArgs& a, const StageRing<N>& ring,
                        const TileSlice& s, RingTurn<StageRing<N>::kStages>& turn) {
  if (a.cut > 0)
    multiply_pieces<N, M>(sum, a, ring, s, turn);
  else
    multiply<N, M>(sum, ring, s, turn);
}

template <int N, bool kGated>
__device__ void consume(const StreamArgs& a, const StageRing<N>& ring, char* staging) {
  wait_for_previous();
  SliceWalk slices(a, job_count<N>(a));
  Epilogue<N, kGated> store = {a, staging};
  SharedTile<N, kGated> shared_tile = {a, store};
  TileSlice s;
  RingTurn<StageRing<N>::kStages> turn;
  float sum[N / 2];
  while (slices.next(&s)) {
    const Job job = job_of<N>(a, s.job);
    if constexpr (N == 256) {
      // An expert's last job may have far fewer rows than the others.
      if (job.rows <= 64)
        compute<N, 64>(sum, a, ring, s, turn);
      else if (job.rows <= 128)
        compute<N, 128>(sum, a, ring, s, turn);
      else
        compute<N, N>(sum, a, ring, s, turn);
    } else {
      compute<N, N>(sum, a, ring, s, turn);
    }
    if (s.begin == 0 && s.end == a.chunks)
      store.store_tile(sum, s, job);
    else
      shared_tile.add(sum, s, job);
  }
}

template <int N, bool kGated>
__global__ void __launch_bounds__(kThreads, 1)
    stream_kernel(const __grid_constant__ CUtensorMap w_map,
                  const __grid_constant__ CUtensorMap x_map, const __grid_constant__ StreamArgs a) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // StreamedProducts::takes() nothing elsewhere
  using Ring = StageRing<N>;
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[2 * Ring::kStages];
  char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t full = shared_address(barriers);
  const Ring ring = {shared_address(memory), full, full + 8 * Ring::kStages};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Ring::kStages; ++i) {
      barrier_init(ring.full + 8 * i, 1);
      barrier_init(ring.empty + 8 * i, kConsumers / 128);
    }
    barrier_init_done();
    fence_async();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) Producer<N, kGated>{w_map, x_map, a, ring}.run();
  } else {
    consume<N, kGated>(a, ring, memory + Ring::kStages * Ring::kStageBytes);
  }
#endif
}

}  // namespace skiff::cuda::streamed
