// ops/cuda/mla/attend_kernel.cuh -- latent attention on Hopper: bf16 queries, rank 512, rope 64. A
// block has 64 query vectors and walks over tiles of 64 positions; blocks are persistent, with
// shares of equal cost (plan.h). One warpgroup multiplies queries, most of which it holds in
// registers, by keys; two multiply the weights by values, which are the first 512 columns of the
// same tile, half of them each. So the softmax of a tile hides behind the values of those before.
// The split of 512 columns over two warpgroups is that of FlashMLA. A cache of 8-bit rows has a
// kernel of its own (rows_kernel.cuh).
//
// Every handover between warpgroups goes through an mbarrier. A warp's lanes first meet at
// __syncwarp(), then one of them arrives: what all of them read and wrote comes before the arrival,
// and so before what waits for the phase. Threads that wrote what wgmma reads have called
// fence_async() before; wgmma's own reads are complete once wgmma_wait() has returned.
#pragma once
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/attend_values.cuh"

namespace skiff::cuda::latent {

template <class Tiles>
__device__ __forceinline__ void scores_group(const LatentPlanArgs& p, Shared<Tiles>& shared) {
  read_ahead(p);
  wait_for_previous();
  let_next_start();
  attend_scores(p, shared);
  clear_padding(p);
}

// Plan and page table were written before the last kernel that triggers its dependents after its
// own wait, so they are visible before this one's.
template <int kWhich, class Tiles>
__device__ __forceinline__ void values_group(const LatentPlanArgs& p, const CUtensorMap& map,
                                             Shared<Tiles>& shared) {
  if (threadIdx.x % kGroupThreads < 32) {
    if (elected()) first_loads<kWhich>(p, map, shared);
    __syncwarp();
  }
  wait_for_previous();
  let_next_start();
  attend_values<kWhich>(p, map, shared, tiles_of_block(p) > 0);
}

template <class Tiles>
__global__ void __launch_bounds__(kAttendGroups* kGroupThreads, 1)
    latent_kernel(const __grid_constant__ LatentPlanArgs p,
                  const __grid_constant__ CUtensorMap map) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // LatentAttention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<Tiles>*>(memory);
  if (threadIdx.x == 0) {
    init_barriers(shared);
    prefetch_map(&map);
  }
  __syncthreads();
  // The shuffle shows the compiler that the value is the same in all threads of a warp.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (group == 0) {
    scores_group(p, shared);
  } else if (group == 1) {
    values_group<0>(p, map, shared);
  } else {
    values_group<1>(p, map, shared);
  }
#endif
}

}  // namespace skiff::cuda::latent
