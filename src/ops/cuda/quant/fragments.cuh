// ops/cuda/quant/fragments.cuh -- packed elements (atoms.h) become operands of the tensor cores in
// registers. Every conversion is exact. PTX ISA, "lop3", "sub.bf16x2", "fma.bf16x2".
#pragma once
#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/cuda/quant/atoms.h"

namespace skiff::cuda::atoms {

// a & b | c.
__device__ __forceinline__ uint32_t masked_or(uint32_t a, uint32_t mask, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(c));
  return d;
}
__device__ __forceinline__ uint32_t subtract_pairs(uint32_t a, uint32_t b) {
  uint32_t d = 0;
#if __CUDA_ARCH__ >= 900
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
#endif
  return d;
}
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  uint32_t d = 0;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
#endif
  return d;
}

// a * b + c.
__device__ __forceinline__ uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d = 0;
#if __CUDA_ARCH__ >= 900
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
#endif
  return d;
}

// Operands of four-bit codes are this part of what the codes stand for; scales make up for it.
constexpr float kFourUnit = 0x1p-6f;
// By what scales are to be multiplied.
template <Codes kCodes>
constexpr float kScalesBy = kCodes == Codes::kFour ? 1 / kFourUnit : 1;

// A number in units of four-bit codes, twice: what codes count from is added negative, and a zero
// point of at most 8 bits is subtracted. The difference to a code is exact.
__device__ __forceinline__ uint32_t four_units(int number) {
  const float value = static_cast<float>(number) * kFourUnit;
  return pack_bf16(value, value);
}

// Four-bit codes at bits `at` and 16 + `at` of a word, in units, plus `base`. `at`: 0, 4, 8 or 12.
// The smallest bf16 are multiples of 2^-133 by their low bits: subnormal ones by seven bits, and
// the first normal ones by eight. So a product makes numbers of codes at 0 and 4 as they lie.
__device__ __forceinline__ uint32_t pair_of_four(uint32_t word, int at, uint32_t base) {
  constexpr uint32_t kTwoTo127 = 0x7f007f00, kTwoTo123 = 0x7d007d00;
  const uint32_t low = at < 8 ? word : word >> 8;
  return at % 8 == 0 ? multiply_add_pairs(low & 0x000f000f, kTwoTo127, base)
                     : multiply_add_pairs(low & 0x00f000f0, kTwoTo123, base);
}
// Bytes 0 and 2 of a word as integers: the low seven bits count from 128 on, or from 256 on where
// the sign bit is set, which is 128 too many.
__device__ __forceinline__ uint32_t pair_of_eight(uint32_t word) {
  constexpr uint32_t k128 = 0x43004300;  // a pair of bf16: 128, whose last bit stands for 1
  return subtract_pairs(masked_or(word, 0x007f007f, k128), masked_or(word, 0x00800080, k128));
}
// Bytes 1 and 3 of a word as e4m3: exponent and mantissa move to those of bf16, whose exponents
// count from 120 lower.
__device__ __forceinline__ uint32_t pair_of_float8(uint32_t word) {
  constexpr uint32_t kTwoTo120 = 0x7b807b80;
  const uint32_t low = (word & 0x7f007f00) >> 4;
  return multiply_pairs(masked_or(word, 0x80008000, low), kTwoTo120);
}

// The operand registers of one atom for step `step` of a chunk: the first and the second half of
// its 16 columns (32 with kFloat8Held). `words`: the 16 bytes of the lane that the step lies in.
// `base`: what is added to codes of four bits.
template <Codes kCodes>
__device__ __forceinline__ void operands(uint32_t& first, uint32_t& second, const uint4& words,
                                         int step, uint32_t base) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  if constexpr (kCodes == Codes::kFour) {
    const uint32_t w = word[step / 2 % 4];
    first = pair_of_four(w, step % 2 * 8, base);
    second = pair_of_four(w, step % 2 * 8 + 4, base);
  } else if constexpr (kCodes == Codes::kEight) {
    const uint32_t w = word[step % 4];
    first = pair_of_eight(w);
    second = pair_of_eight(w >> 8);
  } else if constexpr (kCodes == Codes::kFloat8) {
    const uint32_t w = word[step % 4];
    first = pair_of_float8(w << 8);
    second = pair_of_float8(w);
  } else {
    first = word[step % 2 * 2];
    second = word[step % 2 * 2 + 1];
  }
}

// Steps of the inner dimension in 128 columns, and in the 16 bytes that a lane loads at a time.
template <Codes kCodes>
constexpr int kChunkSteps = kCodes == Codes::kFloat8Held ? 4 : 8;
template <Codes kCodes>
constexpr int kLoadSteps = kCodes == Codes::kFour         ? 8
                           : kCodes == Codes::kFloat8Held ? 2
                                                          : 4;

}  // namespace skiff::cuda::atoms
