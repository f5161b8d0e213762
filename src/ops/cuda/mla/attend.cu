// Latent attention over a bf16 cache (attend_kernel.cuh).
#include "ops/cuda/hopper/tensor_map.h"
#include "ops/cuda/mla/attend_kernel.cuh"

namespace skiff::cuda {

using namespace latent;

size_t latent_part_bytes() { return sizeof(Part); }

CUtensorMap latent_map(const LatentCache& cache, int64_t pages) {
  constexpr uint64_t kColumns = kRank + kRope;
  const uint64_t size[] = {kColumns, 1, static_cast<uint64_t>(cache.page_size),
                           static_cast<uint64_t>(pages)};
  const uint64_t stride[] = {kColumns * 2, kColumns * 2, static_cast<uint64_t>(cache.page_bytes)};
  const uint32_t box[] = {64, 1, kLatentTile, 1};
  return tensor_map(cache.data, size, stride, box, L2Line::k128);
}

void start_latent(const LatentPlanArgs& p, const CUtensorMap& map, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(p.blocks)),
                      .block = dim3(kAttendGroups * kGroupThreads),
                      .shared = sizeof(Shared<CopiedTiles>),
                      .stream = stream};
  allow_shared(latent_kernel<CopiedTiles>, how.shared);
  launch(latent_kernel<CopiedTiles>, how, p, map);
  start_latent_combine(p, stream);
}

}  // namespace skiff::cuda
