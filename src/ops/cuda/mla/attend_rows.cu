// Latent attention over a cache of 8-bit rows (attend_kernel.cuh).
#include "ops/cuda/mla/attend_kernel.cuh"

namespace skiff::cuda {

void start_latent_rows(const LatentPlanArgs& p, cudaStream_t stream) {
  latent::launch_latent<latent::ConvertedTiles>(p, {}, stream);
  start_latent_combine(p, stream);
}

}  // namespace skiff::cuda
