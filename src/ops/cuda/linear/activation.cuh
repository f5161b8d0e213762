// ops/cuda/linear/activation.cuh -- gate functions, to the accuracy that f32 needs.
#pragma once
#include "arch/spec.h"

namespace skiff::cuda {

__device__ __forceinline__ float activate(float x, Act act) {
  if (act == Act::kSilu) return __fdividef(x, 1.0f + __expf(-x));
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

}  // namespace skiff::cuda
