// ops/cuda/activation.cuh -- the activation functions of feed-forward layers.
#pragma once
#include "arch/spec.h"

namespace skiff::cuda {

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }
// With the fast exponential: its error is far below bf16's rounding.
__device__ __forceinline__ float silu_fast(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
// The exact GELU, by the error function.
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

__device__ __forceinline__ float activate(float x, Act act) {
  return act == Act::kSilu ? silu_fast(x) : gelu(x);
}

}  // namespace skiff::cuda
