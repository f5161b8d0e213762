// ops/cuda/quant/codes.cuh -- elements, scales and zero points of quantized weights, one at a time,
// as checkpoints have them. For kernels that need not be fast.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "tensor/tensor.h"

namespace skiff::cuda {

// The bits of element `index`, those of signed integers extended.
__device__ __forceinline__ int code_at(const void* data, DType dtype, int64_t index) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  switch (dtype) {
    case DType::kI4:
    case DType::kU4: {
      const int nibble = bytes[index / 2] >> (index % 2 * 4) & 15;
      return dtype == DType::kI4 ? (nibble ^ 8) - 8 : nibble;
    }
    case DType::kI8:
      return static_cast<int8_t>(bytes[index]);
    default:
      return bytes[index];
  }
}

__device__ __forceinline__ float float_at(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[index];
  if (dtype == DType::kF16) return __half2float(static_cast<const __half*>(data)[index]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
}

__device__ __forceinline__ float value_of_float8(int code) {
  __nv_fp8_e4m3 x;
  x.__x = static_cast<__nv_fp8_storage_t>(code);
  return static_cast<float>(x);
}

}  // namespace skiff::cuda
