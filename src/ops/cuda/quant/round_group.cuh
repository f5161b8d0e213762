// ops/cuda/quant/round_group.cuh -- 128 activations become e4m3 with a scale of their own, by one
// warp.
#pragma once
#include <cuda_fp8.h>

#include <cstdint>

#include "ops/cuda/warp.cuh"

namespace skiff::cuda {

constexpr int kRoundGroup = 128;
constexpr int kLaneElements = kRoundGroup / 32;  // a lane's elements of a warp's group
constexpr float kLeastMax = 1e-4f;               // what a group's scale is made from at least

__device__ __forceinline__ __nv_fp8_storage_t float8_of(float quotient) {
  return __nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3);
}

// A lane's elements of a group, and what they become as e4m3. Divisions are true ones.
struct GroupCodes {
  uint32_t codes;
  float scale;
};
__device__ __forceinline__ GroupCodes codes_of_group(const float (&value)[kLaneElements]) {
  float most = 0;
#pragma unroll
  for (const float v : value) most = fmaxf(most, fabsf(v));
  const float scale = __fdiv_rn(fmaxf(warp_max(most), kLeastMax), 448.0f);
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i)
    codes |= static_cast<uint32_t>(float8_of(__fdiv_rn(value[i], scale))) << 8 * i;
  return {codes, scale};
}

}  // namespace skiff::cuda
