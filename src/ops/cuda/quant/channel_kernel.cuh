// ops/cuda/quant/channel_kernel.cuh -- the GEMM of weights in float8_channels.h by up to a few
// hundred rows of x (channel_shape.h).
#pragma once
#include "ops/cuda/quant/channel_multiply.cuh"
#include "ops/cuda/quant/channel_store.cuh"

namespace skiff::cuda::channels {

template <int N, bool kGated>
__global__ void __launch_bounds__(kThreads, 2)
    channel_kernel(const __grid_constant__ CUtensorMap w_map,
                   const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ ChannelArgs a) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // ChannelProducts::takes() nothing elsewhere
  using Ring = ChannelRing<N>;
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[2 * Ring::kStages];
  __shared__ float x_scales[N];
  char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t full = shared_address(barriers);
  const Ring ring = {shared_address(memory), full, full + 8 * Ring::kStages};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Ring::kStages; ++i) {
      barrier_init(ring.full + 8 * i, 2);
      barrier_init(ring.empty + 8 * i, kConsumers / 32);
    }
    barrier_init_done();
    fence_async();
  }
  __syncthreads();
  const ChannelPart part = part_of<N>(a);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  if (warp < kConsumers / 32) {
    ChannelStore<Ring, kGated> store(a, part, memory, x_scales);
    store.load_scales();
    wait_for_previous();
    if (thread < N)
      x_scales[thread] = thread < part.rows ? __ldcg(a.x_scales + part.first + thread) : 0;
    float sum[N / 2];
    multiply(sum, ring, part);
    named_sync(1, kConsumers);
    store.store(sum);
  } else if (warp == kConsumers / 32 && elected()) {
    load_weights<Ring, kGated>(ring, w_map, part);
  } else if (warp == kConsumers / 32 + 1 && elected()) {
    load_rows(ring, x_map, part);
  }
#endif
}

}  // namespace skiff::cuda::channels
