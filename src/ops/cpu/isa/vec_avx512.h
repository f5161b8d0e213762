// ops/cpu/isa/vec_avx512.h -- sixteen floats, AVX-512 F, BW, DQ and VL.
#pragma once
#include <stdint.h>
#include <string.h>

#include "ops/cpu/isa/intrinsics.h"

namespace skiff::cpu {
namespace {

constexpr int kW = 16;
constexpr int kTileRows = 6;
constexpr int kTileRowsBf16 = 5;
constexpr int kTileVecs = 4;
using F = __m512;
using I = __m512i;
struct Pair {
  F even, odd;
};

inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
inline F set1(float x) { return _mm512_set1_ps(x); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F select_range(F x, F i, F begin, F end, F other) {
  const __mmask16 inside =
      _mm512_cmp_ps_mask(i, begin, _CMP_GE_OQ) & _mm512_cmp_ps_mask(i, end, _CMP_LT_OQ);
  return _mm512_mask_blend_ps(inside, other, x);
}

inline F round(F x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline F pow2(F n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}

inline Pair load_pair(const uint16_t* p) {
  const __m512i u = _mm512_loadu_si512(p);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(u, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(u, high))};
}
inline F load_bf16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline void store_bf16(uint16_t* p, F v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i out = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, up, quiet), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(out));
}
inline F load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m128i read_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline F read_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(read_bytes(p)));
}
// The bits of e4m3 are those of a float but for the exponent's bias; what is subnormal stays exact.
inline F read_e4m3(const uint8_t* p) {
  const __m512i u = _mm512_cvtepu8_epi32(read_bytes(p));
  const __m512i size = _mm512_slli_epi32(_mm512_and_si512(u, _mm512_set1_epi32(0x7f)), 20);
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(u, _mm512_set1_epi32(0x80)), 24);
  return _mm512_or_ps(_mm512_mul_ps(_mm512_castsi512_ps(size), set1(0x1p120f)),
                      _mm512_castsi512_ps(sign));
}
// Finite numbers rounded to bf16.
inline F round_bf16(F v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  return _mm512_castsi512_ps(
      _mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Both read a bit field of each 32-bit word as a float: the word is shifted to the left and then to
// the right, so that the field remains as a signed or an unsigned integer, which is converted.
inline F signed_field(const uint32_t* p, int left, int right) {
  const __m512i u = _mm512_slli_epi32(_mm512_loadu_si512(p), static_cast<unsigned>(left));
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(u, static_cast<unsigned>(right)));
}
inline F unsigned_field(const uint32_t* p, int left, int right) {
  const __m512i u = _mm512_slli_epi32(_mm512_loadu_si512(p), static_cast<unsigned>(left));
  return _mm512_cvtepi32_ps(_mm512_srli_epi32(u, static_cast<unsigned>(right)));
}
// Reads the upper 8 bits of each shifted word as e4m3. With its bits in a float's places, a value
// is 2^-120 of what it should be, also where it is subnormal. It must not be NaN.
inline F e4m3_field(const uint32_t* p, int left) {
  const __m512i u = _mm512_slli_epi32(_mm512_loadu_si512(p), static_cast<unsigned>(left));
  const __m512i size = _mm512_and_si512(_mm512_srli_epi32(u, 4), _mm512_set1_epi32(0x07f00000));
  const __m512i sign = _mm512_and_si512(u, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
  return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(size, sign)), set1(0x1p120f));
}
// Reads the upper 4 bits of each shifted word as e2m1.
inline F e2m1_field(const uint32_t* p, int left) {
  const __m512i u = _mm512_slli_epi32(_mm512_loadu_si512(p), static_cast<unsigned>(left));
  const F values =
      _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(u, 28), values);
}

// Words and their halves as integers.
inline I load_words(const uint32_t* p) { return _mm512_loadu_si512(p); }
inline I set1_int(int32_t x) { return _mm512_set1_epi32(x); }
inline I set1_word(const int16_t* p) {
  int32_t word;
  memcpy(&word, p, sizeof word);
  return set1_int(word);
}
inline I halves_of(I u, int right, int mask) {
  return _mm512_and_si512(_mm512_srli_epi32(u, static_cast<unsigned>(right)), set1_int(mask));
}
// Adds the products of both halves.
inline I add_products(I sum, I a, I b) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
inline F to_floats(I v) { return _mm512_cvtepi32_ps(v); }

inline void transpose(F (&r)[kW]) {
  F a[kW], b[kW];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
  // b[4g + c], lane l: rows 4g..4g+3 of column 4l + c.
  for (int c = 0; c < 4; ++c) {
    const F low = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
    const F low2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
    const F high = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
    const F high2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
    r[c] = _mm512_shuffle_f32x4(low, low2, 0x88);
    r[8 + c] = _mm512_shuffle_f32x4(low, low2, 0xdd);
    r[4 + c] = _mm512_shuffle_f32x4(high, high2, 0x88);
    r[12 + c] = _mm512_shuffle_f32x4(high, high2, 0xdd);
  }
}

}  // namespace
}  // namespace skiff::cpu
