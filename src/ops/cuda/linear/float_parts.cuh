// ops/cuda/linear/float_parts.cuh -- float32 numbers as the sums of three bf16 numbers.
#pragma once
#include "ops/cuda/math.cuh"

namespace skiff::cuda {

constexpr int kFloatParts = 3;

// Two numbers, each as parts that add up to it, the largest first.
struct FloatParts {
  uint32_t pair[kFloatParts];
};

__device__ __forceinline__ FloatParts split_floats(float low, float high) {
  FloatParts parts;
#pragma unroll
  for (uint32_t& pair : parts.pair) {
    pair = pack_bf16(low, high);
    low -= low_bf16(pair);
    high -= high_bf16(pair);
  }
  return parts;
}

}  // namespace skiff::cuda
