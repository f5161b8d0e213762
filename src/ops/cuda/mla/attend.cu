// Latent attention on Hopper: bf16, rank 512, rope 64. A block has 64 query vectors and walks over
// tiles of 64 positions; blocks are persistent, with shares of equal cost (plan.h). One warpgroup
// multiplies queries, most of which it holds in registers, by keys; two multiply the weights by
// values, which are the first 512 columns of the same tile, half of them each. So the softmax of a
// tile hides behind the values of those before. The split of 512 columns over two warpgroups is
// that of FlashMLA.
#include <algorithm>

#include "ops/cuda/hopper/tensor_map.h"
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/attend_values.cuh"

namespace skiff::cuda {
namespace {

using namespace latent;

// Writes zeros to the padding rows of `out`.
__device__ void clear_padding(const LatentPlanArgs& p) {
  auto* out = static_cast<__nv_bfloat16*>(p.args.out);
  const int end = p.args.rows.num_tokens * p.args.heads;
  for (int vector = p.head->vectors + static_cast<int>(blockIdx.x); vector < end;
       vector += static_cast<int>(gridDim.x)) {
    for (int c = static_cast<int>(threadIdx.x) % kGroupThreads * 8; c < kRank;
         c += kGroupThreads * 8)
      *reinterpret_cast<uint4*>(out + vector * p.args.out_stride + c) = uint4{};
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    latent_kernel(const __grid_constant__ LatentPlanArgs p,
                  const __grid_constant__ CUtensorMap map) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // LatentAttention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    const auto init = [](auto& barriers, int arrivals) {
      for (uint64_t& barrier : barriers) barrier_init(shared_address(&barrier), arrivals);
    };
    init(shared.left_full, 1);
    init(shared.right_full, 1);
    init(shared.p_full, kWarpsOfGroup);
    init(shared.left_done, kWarpsOfGroup);
    init(shared.all_done, 2 * kWarpsOfGroup);
    barrier_init_done();
    prefetch_map(&map);
  }
  __syncthreads();
  // The shuffle shows the compiler that the value is the same in all threads of a warp.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (group == 0) {
    wait_for_previous();
    let_next_start();
    attend_scores(p, shared);
    clear_padding(p);
  } else {
    // Plan and page table were written before the last kernel that triggers its dependents after
    // its own wait, so they are visible here.
    if (threadIdx.x % kGroupThreads < 32) {
      if (elected()) {
        if (group == 1)
          first_loads<0>(p, map, shared);
        else
          first_loads<1>(p, map, shared);
      }
      __syncwarp();
    }
    wait_for_previous();
    let_next_start();
    const int width = p.head->width, index = static_cast<int>(blockIdx.x) / width;
    const bool any = index < p.blocks / width && p.shares[index].begin < p.shares[index].end;
    if (group == 1)
      attend_values<0>(p, map, shared, any);
    else
      attend_values<1>(p, map, shared, any);
  }
#endif
}

}  // namespace

size_t latent_part_bytes() { return sizeof(Part); }

CUtensorMap latent_map(const LatentCache& cache, int64_t pages) {
  constexpr uint64_t kColumns = kRank + kRope;
  const uint64_t size[] = {kColumns, 1, static_cast<uint64_t>(cache.page_size),
                           static_cast<uint64_t>(pages)};
  const uint64_t stride[] = {kColumns * 2, kColumns * 2,
                             static_cast<uint64_t>(cache.page_stride) * 2};
  const uint32_t box[] = {64, 1, kLatentTile, 1};
  return tensor_map(cache.data, size, stride, box, L2Line::k128);
}

void start_latent(const LatentPlanArgs& p, const CUtensorMap& cache, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(p.blocks)),
                      .block = dim3(kThreads),
                      .shared = sizeof(Shared),
                      .stream = stream};
  allow_shared(latent_kernel, how.shared);
  launch(latent_kernel, how, p, cache);
  start_latent_combine(p, stream);
}

}  // namespace skiff::cuda
