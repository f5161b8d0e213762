// ops/cpu/isa/vec_avx2.h -- eight floats, AVX2 with FMA and F16C.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace skiff::cpu {
namespace {

constexpr int kW = 8;
constexpr int kTileRows = 6;
constexpr int kTileRowsBf16 = 5;
constexpr int kTileVecs = 2;
using F = __m256;
using I = __m256i;
struct Pair {
  F even, odd;
};

inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F v) { _mm256_storeu_ps(p, v); }
inline F set1(float x) { return _mm256_set1_ps(x); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm256_max_ps(a, b); }
inline F min(F a, F b) { return _mm256_min_ps(a, b); }
inline F select_range(F x, F i, F begin, F end, F other) {
  const F inside =
      _mm256_and_ps(_mm256_cmp_ps(i, begin, _CMP_GE_OQ), _mm256_cmp_ps(i, end, _CMP_LT_OQ));
  return _mm256_blendv_ps(other, x, inside);
}

inline F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F pow2(F n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

inline Pair load_pair(const uint16_t* p) {
  const __m256i u = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(u, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(u, high))};
}
inline F load_bf16(const uint16_t* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline void store_bf16(uint16_t* p, F v) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i out = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(out, out), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(halves));
}
inline F load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m256i read_bytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline F read_i8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// The bits of e4m3 are those of a float but for the exponent's bias; what is subnormal stays exact.
inline F read_e4m3(const uint8_t* p) {
  const __m256i u = read_bytes(p);
  const __m256i size = _mm256_slli_epi32(_mm256_and_si256(u, _mm256_set1_epi32(0x7f)), 20);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(u, _mm256_set1_epi32(0x80)), 24);
  return _mm256_or_ps(_mm256_mul_ps(_mm256_castsi256_ps(size), set1(0x1p120f)),
                      _mm256_castsi256_ps(sign));
}
// Finite numbers rounded to bf16.
inline F round_bf16(F v) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  return _mm256_castsi256_ps(
      _mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Fields of 32-bit words, as in vec_avx512.h.
inline __m256i shifted(const uint32_t* p, int left) {
  return _mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), left);
}
inline F signed_field(const uint32_t* p, int left, int right) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(shifted(p, left), right));
}
inline F unsigned_field(const uint32_t* p, int left, int right) {
  return _mm256_cvtepi32_ps(_mm256_srli_epi32(shifted(p, left), right));
}
inline F e4m3_field(const uint32_t* p, int left) {
  const __m256i u = shifted(p, left);
  const __m256i size = _mm256_and_si256(_mm256_srli_epi32(u, 4), _mm256_set1_epi32(0x07f00000));
  const __m256i sign = _mm256_and_si256(u, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
  return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(size, sign)), set1(0x1p120f));
}
inline F e2m1_field(const uint32_t* p, int left) {
  const __m256i u = shifted(p, left);
  const F sizes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);  // picked by the low three bits
  const F size = _mm256_permutevar8x32_ps(sizes, _mm256_srli_epi32(u, 28));
  const __m256i sign = _mm256_and_si256(u, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
  return _mm256_or_ps(size, _mm256_castsi256_ps(sign));
}

// Words and their halves as integers, as in vec_avx512.h.
inline I load_words(const uint32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline I set1_int(int32_t x) { return _mm256_set1_epi32(x); }
inline I set1_word(const int16_t* p) {
  int32_t word;
  memcpy(&word, p, sizeof word);
  return set1_int(word);
}
inline I halves_of(I u, int right, int mask) {
  return _mm256_and_si256(_mm256_srli_epi32(u, right), set1_int(mask));
}
inline I add_products(I sum, I a, I b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
inline F to_floats(I v) { return _mm256_cvtepi32_ps(v); }

inline void transpose(F (&r)[kW]) {
  F a[kW], b[kW];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

}  // namespace
}  // namespace skiff::cpu
