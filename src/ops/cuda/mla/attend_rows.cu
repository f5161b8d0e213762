// Latent attention over a cache of 8-bit rows (rows_kernel.cuh). The largest item of a step decides
// how many query vectors a block has: on the device, since one graph computes steps of any kind.
#include <algorithm>

#include "ops/cuda/mla/rows_kernel.cuh"

namespace skiff::cuda {

using namespace latent;

namespace {

constexpr size_t kSharedBytes =
    std::max(sizeof(RowsShared<RowTiles<32>>), sizeof(RowsShared<RowTiles<64>>));

// The plan was written before the last kernel that triggers its dependents after its own wait, so
// it is visible before this one's.
__global__ void __launch_bounds__(kRowsGroups* kGroupThreads, 1)
    latent_rows_kernel(const __grid_constant__ LatentPlanArgs p) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // LatentAttention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  const int widest = __shfl_sync(kAllLanes, p.head->widest, 0);
  if (widest <= 16)
    rows_block<RowTiles<16>>(p, memory);
  else if (widest <= 32)
    rows_block<RowTiles<32>>(p, memory);
  else
    rows_block<RowTiles<64>>(p, memory);
#endif
}

}  // namespace

void start_latent_rows(const LatentPlanArgs& p, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(p.blocks)),
                      .block = dim3(kRowsGroups * kGroupThreads),
                      .shared = kSharedBytes,
                      .stream = stream};
  allow_shared(latent_rows_kernel, how.shared);
  launch(latent_rows_kernel, how, p);
  start_latent_combine(p, stream);
}

}  // namespace skiff::cuda
