// ops/cpu/isa/tile_softmax.h -- one step of the online softmax of kQueryLanes queries, across
// vectors that have one key's scores each. To be used while subnormals are flushed.
#pragma once
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

constexpr int kLanes = kQueryLanes;

// What is computed for the queries of one vector.
struct Scratch {
  alignas(64) float scores[kKvBlock][kLanes];
  alignas(64) uint16_t weights[kLanes][kKvBlock];
  alignas(64) float max[kLanes], sum[kLanes], keep[kLanes];
  alignas(64) int32_t begin[kLanes], end[kLanes];
};

// 2^x, off by 3e-6 of its size at most; 1 where x is 0.
inline __m512 exp2_of(__m512 x) {
  constexpr int kAboveFloor = 1;
  const __m512 r = _mm512_reduce_ps(x, kAboveFloor);
  __m512 p = _mm512_set1_ps(0.013426683843135834f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.052242472767829895f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.241280198097229f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6930448412895203f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
  return _mm512_scalef_ps(p, x);
}

// Rounds two vectors that are not negative to bf16, which become the halves of words.
inline __m512i pair_of(__m512 even, __m512 odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  const __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, low, high);
}

// The keys that each query sees.
struct Seen {
  __m512i begin, end;
  bool all;

  explicit Seen(const Scratch& s)
      : begin(_mm512_load_si512(s.begin)), end(_mm512_load_si512(s.end)) {
    const __m512i none = _mm512_setzero_si512(), most = _mm512_set1_epi32(kKvBlock);
    all = _mm512_cmpgt_epi32_mask(begin, none) == 0 && _mm512_cmplt_epi32_mask(end, most) == 0;
  }
  __mmask16 at(int j) const {
    const __m512i key = _mm512_set1_epi32(j);
    return _mm512_cmple_epi32_mask(begin, key) & _mm512_cmplt_epi32_mask(key, end);
  }
};

template <bool kAll>
inline __m512 best_of(const Scratch& s, const Seen& seen) {
  __m512 best[4];
  for (auto& x : best) x = _mm512_set1_ps(-__builtin_inff());
  for (int j = 0; j < kKvBlock; j += 4)
    for (int i = 0; i < 4; ++i) {
      const __m512 x = _mm512_load_ps(s.scores[j + i]);
      best[i] = kAll ? _mm512_max_ps(x, best[i])
                     : _mm512_mask_max_ps(best[i], seen.at(j + i), x, best[i]);
    }
  return _mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3]));
}

// Turns 16 words of each of 16 queries, [pair][query], into rows of the weights.
void store_words(__m512i (&w)[kLanes], Scratch& s, int first) {
  __m512i a[kLanes];
  for (int i = 0; i < kLanes; i += 2) {
    a[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4) {
    w[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    w[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    w[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    w[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  // w[4g + c] has pairs 4g to 4g + 3 of queries c, 4 + c, 8 + c and 12 + c.
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(w[c], w[4 + c], 0x88);
    const __m512i high = _mm512_shuffle_i32x4(w[c], w[4 + c], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(w[8 + c], w[12 + c], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(w[8 + c], w[12 + c], 0xdd);
    _mm512_store_si512(s.weights[c] + first, _mm512_shuffle_i32x4(low, low2, 0x88));
    _mm512_store_si512(s.weights[8 + c] + first, _mm512_shuffle_i32x4(low, low2, 0xdd));
    _mm512_store_si512(s.weights[4 + c] + first, _mm512_shuffle_i32x4(high, high2, 0x88));
    _mm512_store_si512(s.weights[12 + c] + first, _mm512_shuffle_i32x4(high, high2, 0xdd));
  }
}

// Turns scores into weights, and updates maxima and sums.
template <bool kAll>
[[gnu::noinline]] void softmax(Scratch& s, const Seen& seen, float scale) {
  constexpr float kLog2E = 1.44269504f;
  const __m512 low = _mm512_set1_ps(-__builtin_inff()), old = _mm512_load_ps(s.max);
  const __m512 best = _mm512_mul_ps(best_of<kAll>(s, seen), _mm512_set1_ps(scale));
  const __m512 max = _mm512_max_ps(best, old);
  const __mmask16 any = _mm512_cmp_ps_mask(max, low, _CMP_NEQ_UQ);
  const __m512 shift = _mm512_maskz_mul_ps(any, max, _mm512_set1_ps(kLog2E));
  const __m512 factor = _mm512_set1_ps(scale * kLog2E);
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int j = 0; j < kKvBlock; j += 2 * kLanes) {
    __m512i words[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      __m512 p[2];
      for (int n = 0; n < 2; ++n) {
        const int key = j + 2 * i + n;
        p[n] = exp2_of(_mm512_fmsub_ps(_mm512_load_ps(s.scores[key]), factor, shift));
        if constexpr (!kAll) p[n] = _mm512_maskz_mov_ps(seen.at(key), p[n]);
        sums[n] = _mm512_add_ps(sums[n], p[n]);
      }
      words[i] = pair_of(p[0], p[1]);
    }
    store_words(words, s, j);
  }
  const __m512 change = _mm512_mul_ps(_mm512_maskz_sub_ps(any, old, max), _mm512_set1_ps(kLog2E));
  const __m512 keep = exp2_of(change);
  _mm512_store_ps(s.keep, keep);
  _mm512_store_ps(s.max, max);
  _mm512_store_ps(s.sum,
                  _mm512_fmadd_ps(_mm512_load_ps(s.sum), keep, _mm512_add_ps(sums[0], sums[1])));
}

void softmax(Scratch& s, float scale) {
  const Seen seen(s);
  seen.all ? softmax<true>(s, seen, scale) : softmax<false>(s, seen, scale);
}

}  // namespace
}  // namespace skiff::cpu
