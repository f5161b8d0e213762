// ops/cuda/quant/round_group.cuh -- 128 activations become e4m3 with a scale of their own, by a
// warp or by half of one.
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

// Divides by one number many times: the quotient is that of a true division, in three instructions
// (P. Markstein, IBM Journal of Research and Development 34, 1990, theorem 5: with a reciprocal
// that is rounded correctly, so is the corrected quotient). Quotients that are subnormal are not
// exact, and e4m3 has none so small.
struct Divisor {
  float by, reciprocal;
};
__device__ __forceinline__ Divisor divisor(float by) { return {by, __frcp_rn(by)}; }
__device__ __forceinline__ float divided(float value, const Divisor& d) {
  const float near = __fmul_rn(value, d.reciprocal);
  return __fmaf_rn(__fmaf_rn(-d.by, near, value), d.reciprocal, near);
}

// What a lane's N elements of a group become as e4m3, four to a word; 128 / N neighbouring lanes
// have a group, and call this together with the rest of the warp.
template <int N>
struct GroupCodes {
  uint32_t codes[N / 4];
  float scale;
};
template <int N>
__device__ __forceinline__ GroupCodes<N> codes_of_group(const float (&value)[N]) {
  float most = 0;
#pragma unroll
  for (const float v : value) most = fmaxf(most, fabsf(v));
#pragma unroll
  for (int mask = kRoundGroup / N / 2; mask > 0; mask /= 2)
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, mask));
  GroupCodes<N> as = {.codes = {}, .scale = __fdiv_rn(fmaxf(most, kLeastMax), 448.0f)};
  const Divisor scale = divisor(as.scale);
#pragma unroll
  for (int i = 0; i < N; ++i)
    as.codes[i / 4] |= static_cast<uint32_t>(float8_of(divided(value[i], scale))) << i % 4 * 8;
  return as;
}

}  // namespace skiff::cuda
