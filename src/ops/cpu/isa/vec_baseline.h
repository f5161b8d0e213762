// ops/cpu/isa/vec_baseline.h -- four floats, in the compiler's portable vector types; products of
// integers are an instruction of SSE2, which every x86-64 has.
#pragma once
#include <emmintrin.h>
#include <stdint.h>
#include <string.h>

namespace skiff::cpu {
namespace {

constexpr int kW = 4;             // floats in a vector
constexpr int kTileRows = 4;      // rows of a register tile, f32 weights
constexpr int kTileRowsBf16 = 3;  // rows of a register tile, bf16 weights
constexpr int kTileVecs = 2;      // vectors of columns in a register tile
using F = float __attribute__((vector_size(16)));
using I = int32_t __attribute__((vector_size(16)));
using U = uint32_t __attribute__((vector_size(16)));
struct Pair {
  F even, odd;
};

inline F load(const float* p) {
  F v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, F v) { memcpy(p, &v, sizeof v); }
inline F set1(float x) { return F{x, x, x, x}; }
inline F fma(F a, F b, F c) { return a * b + c; }
inline F max(F a, F b) { return a > b ? a : b; }  // b where either is not a number
inline F min(F a, F b) { return a < b ? a : b; }
inline F select_range(F x, F i, F begin, F end, F other) {
  return ((i >= begin) & (i < end)) ? x : other;
}

// x rounded to an integer, and 2 to that power; -127 <= x <= 128.
inline F round(F x) {
  const F magic = set1(12582912.0f);
  return (x + magic) - magic;
}
inline F pow2(F n) { return (F)((__builtin_convertvector(n, I) + 127) << 23); }

inline Pair load_pair(const uint16_t* p) {
  U u;
  memcpy(&u, p, sizeof u);
  return {(F)(u << 16), (F)(u & 0xffff0000u)};
}
inline F load_bf16(const uint16_t* p) {
  const U u = {p[0], p[1], p[2], p[3]};
  return (F)(u << 16);
}
inline void store_bf16(uint16_t* p, F v) {
  const U u = (U)v;
  const U rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  const U nan = u >> 16 | 0x40;
  const U out = (u & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
  for (int i = 0; i < kW; ++i) p[i] = static_cast<uint16_t>(out[i]);
}
inline float f16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t body = static_cast<uint32_t>(h & 0x7fff) << 13;
  float x;
  if ((h & 0x7c00) == 0x7c00) {
    const uint32_t u = sign | 0x7f800000 | body;
    memcpy(&x, &u, sizeof x);
    return x;
  }
  memcpy(&x, &body, sizeof x);
  x *= 0x1p112f;  // moves the exponent's bias from 15 to 127, subnormals included
  return sign ? -x : x;
}
inline F load_f16(const uint16_t* p) {
  return F{f16_to_float(p[0]), f16_to_float(p[1]), f16_to_float(p[2]), f16_to_float(p[3])};
}
inline F read_i8(const uint8_t* p) {
  int8_t __attribute__((vector_size(4))) bytes;
  memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, F);
}
// The bits of e4m3 are those of a float but for the exponent's bias; what is subnormal stays exact.
inline F read_e4m3(const uint8_t* p) {
  const U u = {p[0], p[1], p[2], p[3]};
  const F size = (F)((u & 0x7f) << 20) * set1(0x1p120f);
  return (F)((U)size | (u & 0x80) << 24);
}
// Finite numbers rounded to bf16.
inline F round_bf16(F v) {
  const U u = (U)v;
  return (F)((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u);
}

// Fields of 32-bit words, as in vec_avx512.h.
inline U shifted(const uint32_t* p, int left) {
  U u;
  memcpy(&u, p, sizeof u);
  return u << left;
}
inline F signed_field(const uint32_t* p, int left, int right) {
  return __builtin_convertvector((I)shifted(p, left) >> right, F);
}
inline F unsigned_field(const uint32_t* p, int left, int right) {
  return __builtin_convertvector((I)(shifted(p, left) >> right), F);
}
inline F e4m3_field(const uint32_t* p, int left) {
  const U u = shifted(p, left);
  return (F)((u >> 4 & 0x07f00000u) | (u & 0x80000000u)) * set1(0x1p120f);
}
inline F e2m1_field(const uint32_t* p, int left) {
  const U u = shifted(p, left);
  return (F)((u >> 6 & 0x01c00000u) | (u & 0x80000000u)) * set1(0x1p126f);
}

// Words and their halves as integers, as in vec_avx512.h.
inline I load_words(const uint32_t* p) {
  I v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline I set1_int(int32_t x) { return I{x, x, x, x}; }
inline I set1_word(const int16_t* p) {
  int32_t word;
  memcpy(&word, p, sizeof word);
  return set1_int(word);
}
inline I halves_of(I u, int right, int mask) { return (I)((U)u >> right) & mask; }
inline I add_products(I sum, I a, I b) {
  return (I)((U)sum + (U)_mm_madd_epi16((__m128i)a, (__m128i)b));
}
inline F to_floats(I v) { return __builtin_convertvector(v, F); }

inline void transpose(F (&r)[kW]) {
  const F a[kW] = {r[0], r[1], r[2], r[3]};
  for (int i = 0; i < kW; ++i) r[i] = F{a[0][i], a[1][i], a[2][i], a[3][i]};
}

}  // namespace
}  // namespace skiff::cpu
