// ops/cuda/warp.cuh -- reductions and prefix sums over the lanes of a warp. All 32 lanes take part;
// the order of additions is fixed, so results repeat bit for bit.
#pragma once
#include <cstdint>

namespace skiff::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

// The sum and the maximum over the lanes, in every lane.
template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, mask));
  return x;
}

// The sum over the lanes up to and including `lane`, which is this one.
template <class T>
__device__ __forceinline__ T warp_prefix_sum(T x, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T other = __shfl_up_sync(kAllLanes, x, distance);
    if (lane >= distance) x += other;
  }
  return x;
}

// Returns x, of which the compiler no longer sees how it was computed: in a loop it keeps the value
// in a register instead of computing it again each time. All lanes take part.
__device__ __forceinline__ uint32_t kept(uint32_t x) {
  return __shfl_sync(kAllLanes, x, threadIdx.x % 32);
}

}  // namespace skiff::cuda
