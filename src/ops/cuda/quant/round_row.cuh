// ops/cuda/quant/round_row.cuh -- activations become e4m3 with the scale of their row.
#pragma once
#include <cuda_fp8.h>

#include <cstdint>

#include "ops/cuda/math.cuh"

namespace skiff::cuda {

// The scale of a row whose largest magnitude is `most`. Divisions are true ones.
__device__ __forceinline__ float scale_of_row(float most) {
  return most == 0 ? 1.0f : __fdiv_rn(most, 448.0f);
}

__device__ __forceinline__ uint32_t codes_of_two(float low, float high, float scale) {
  return __nv_cvt_float2_to_fp8x2({__fdiv_rn(low, scale), __fdiv_rn(high, scale)}, __NV_SATFINITE,
                                  __NV_E4M3);
}
// What two pairs of bf16 become.
__device__ __forceinline__ uint32_t codes_of_four(uint32_t first, uint32_t second, float scale) {
  return codes_of_two(low_bf16(first), high_bf16(first), scale) |
         codes_of_two(low_bf16(second), high_bf16(second), scale) << 16;
}

__device__ __forceinline__ float largest_of(float most, uint32_t pair) {
  return fmaxf(most, fmaxf(fabsf(low_bf16(pair)), fabsf(high_bf16(pair))));
}
__device__ __forceinline__ float largest_of(float most, const uint4& pairs) {
  return largest_of(largest_of(largest_of(largest_of(most, pairs.x), pairs.y), pairs.z), pairs.w);
}

}  // namespace skiff::cuda
