// ops/cuda/float8_half.cuh -- e4m3 codes as f16 numbers, which hold them exactly: one instruction
// converts two neighbouring codes, and none converts them into bf16. PTX ISA, "cvt", "mul", "sub".
#pragma once
#include <cstdint>

namespace skiff::cuda {

// Codes 0 and 1 of a word, and codes 2 and 3.
__device__ __forceinline__ uint32_t first_codes(uint32_t word) {
  uint32_t y;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
      : "=r"(y)
      : "r"(word));
  return y;
}
__device__ __forceinline__ uint32_t last_codes(uint32_t word) {
  uint32_t y;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}"
      : "=r"(y)
      : "r"(word));
  return y;
}

// Pairs of f16 in a register.
__device__ __forceinline__ uint32_t mul_half(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
__device__ __forceinline__ uint32_t sub_half(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
__device__ __forceinline__ uint32_t pack_half(float low, float high) {
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ __forceinline__ float sum_of_half(uint32_t pair) {
  float low, high;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(low), "=f"(high)
      : "r"(pair));
  return low + high;
}

// 1 / x of a power of two whose inverse is a normal number.
__device__ __forceinline__ float inverse_power(float power_of_two) {
  return __uint_as_float(0x7f000000u - __float_as_uint(power_of_two));
}

}  // namespace skiff::cuda
