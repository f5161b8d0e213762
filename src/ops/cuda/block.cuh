// ops/cuda/block.cuh -- a reduction over the threads of a block. All threads take part, and there
// is a multiple of 32 of them; the order of additions is fixed, so results repeat bit for bit.
#pragma once
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {

// Returns the sum over a block, the same in every thread. A block that calls it again calls
// __syncthreads() in between.
__device__ inline float block_sum(float x) {
  __shared__ float partial[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  x = warp_sum(x);
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  return warp_sum(lane < warps ? partial[lane] : 0);
}

}  // namespace skiff::cuda
