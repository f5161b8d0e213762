// ops/cuda/attention/quantized.cuh -- elements of a quantized cache as bf16 values, the same bits
// as ops/kv_quant.h: one at a time for portable kernels, and pairs in registers for tensor cores.
// All codes of eight bits and less are exact in bf16, so a value is rounded once, by the product
// with its scale.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "ops/cuda/attention/args.h"

namespace skiff::cuda {

__device__ __forceinline__ float bf16_value(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// Returns the value of element `d` of the head at `elements`, whose scales begin at `scales`.
template <KvElement kElement>
__device__ __forceinline__ float value_at(const uint8_t* elements, const uint16_t* scales, int d) {
  float element, scale;
  if constexpr (kElement == KvElement::kU4) {
    const uint16_t* group = scales + d / kKvGroup * 2;
    const int code = elements[d / 2] >> d % 2 * 4 & 15;
    element = static_cast<float>(code) - bf16_value(group[1]);
    scale = bf16_value(group[0]);
  } else {
    const uint8_t code = elements[d];
    scale = bf16_value(*scales);
    if constexpr (kElement == KvElement::kI8) {
      element = static_cast<float>(static_cast<int8_t>(code));
    } else {
      const float size = __uint_as_float(static_cast<uint32_t>(code & 0x7f) << 20) * 0x1p120f;
      element = code & 0x80 ? -size : size;
    }
  }
  return __bfloat162float(__float2bfloat16_rn(scale * element));
}

// Two bf16 numbers in a register.
__device__ __forceinline__ uint32_t sub_pair(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
__device__ __forceinline__ uint32_t mul_pair(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}

// Holds the scales of both numbers of a pair and, in kU4, 128 more than their zero points, because
// pairs of nibbles are converted to 128 more than they are.
struct PairScale {
  uint32_t scale, zero;
};

// Makes the scales of a pair from those of its two positions as they lie in memory: a bf16 number
// each, or in kU4 a scale and a zero point.
template <KvElement kElement>
__device__ __forceinline__ PairScale pair_scale(uint32_t first, uint32_t second) {
  const uint32_t scale = __byte_perm(first, second, 0x5410);
  if constexpr (kElement == KvElement::kU4) {
    uint32_t zero;  // exact, since zero points are integers up to 15
    asm("add.rn.bf16x2 %0, %1, %2;"
        : "=r"(zero)
        : "r"(__byte_perm(first, second, 0x7632)), "r"(0x43004300u));
    return {scale, zero};
  } else if constexpr (kElement == KvElement::kE4M3) {
    return {mul_pair(scale, 0x7b807b80u), 0};  // the pairs lack 2^120
  } else {
    return {scale, 0};
  }
}

// Bytes 0 and 2 of a word of kI8 or kE4M3 as a pair.
template <KvElement kElement>
__device__ __forceinline__ uint32_t even_bytes(uint32_t word, const PairScale& by) {
  if constexpr (kElement == KvElement::kI8) {
    // 128 and the low seven bits; less 256 where the sign bit is set, else less 128.
    return mul_pair(
        sub_pair((word & 0x007f007fu) | 0x43004300u, (word & 0x00800080u) | 0x43004300u), by.scale);
  } else {
    // Exponent and mantissa in the places of bf16's.
    return mul_pair((word & 0x007f007fu) << 4 | (word & 0x00800080u) << 8, by.scale);
  }
}
// Bytes 1 and 3.
template <KvElement kElement>
__device__ __forceinline__ uint32_t odd_bytes(uint32_t word, const PairScale& by) {
  if constexpr (kElement == KvElement::kI8) {
    return even_bytes<kElement>(word >> 8, by);
  } else {
    return mul_pair((word & 0x7f007f00u) >> 4 | (word & 0x80008000u), by.scale);
  }
}
// Nibbles n and n + 4 of a word.
__device__ __forceinline__ uint32_t nibbles(uint32_t word, int n, const PairScale& by) {
  const uint32_t codes = (word >> 4 * n & 0x000f000fu) | 0x43004300u;  // 128 more than they are
  return mul_pair(sub_pair(codes, by.zero), by.scale);
}

}  // namespace skiff::cuda
