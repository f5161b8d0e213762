// ops/cuda/attention/decode_bytes.cuh -- the split-KV decode kernel's main loop body over a cache
// of bytes, int8 or e4m3, whose codes become f16 numbers, which hold them exactly. Scales do not
// meet the codes: that of a key multiplies its scores, and that of a value its probability. So a
// value is the product of code and scale itself, not rounded to bf16 (ops/kv_quant.h).
//
// What the tensor cores get is f16 on both sides, so queries and probabilities have units, powers
// of two that keep them in its range:
// - A query's largest element lies in [2^14, 2^15): all bits are kept but of elements below 2^-28
//   of that, whose error is below 2^-39 of it.
// - The first scale of a value that a row sees becomes 2^8 to 2^9, and so may those up to 2^6 times
//   as large; beyond that the unit changes, as sums change with a new maximum. Each row has its own
//   unit, which follows from what that row sees. A probability times its scale is rounded to 11
//   bits, or to 2^-33 of the largest scale so far where it is below 2^-22 of that.
//
// A lane takes words of a head in the order in which they lie in memory (decode_words.cuh).
#pragma once
#include "ops/cuda/attention/decode_words.cuh"
#include "ops/cuda/float8_half.cuh"

namespace skiff::cuda::decode {

template <class S>
requires(S::kBytes) struct Units<S> {
  float score[2];          // a row's scores are the sums times this and the key's scale
  float value[2];          // its probabilities are multiplied by this and the value's scale
  uint32_t most_value[2];  // bits of the largest scale that needs no other unit

  __device__ void begin_piece() {
    value[0] = value[1] = 0;
    most_value[0] = most_value[1] = 0;
  }
  __device__ float of_values(int half) const { return inverse_power(value[half]); }

  // Takes a unit for values whose largest scale has these bits, as a bf16 number; returns the
  // factor for sums in the unit before.
  __device__ float change(int half, uint32_t scale) {
    const uint32_t exponent = max(scale >> 7, 8u);  // so that its unit is a normal number
    const float before = value[half];
    value[half] = __uint_as_float((127 + 8 + 127 - exponent) << 23);
    most_value[half] = (exponent + 6) << 7 | 0x7f;
    return before == 0 ? 1.0f : value[half] * inverse_power(before);
  }
};

// Codes 0 and 1 of a word, or 2 and 3 (kLast), as a pair of f16.
template <KvElement kElement, bool kLast>
__device__ __forceinline__ uint32_t code_pair(uint32_t word) {
  if constexpr (kElement == KvElement::kE4M3) return kLast ? last_codes(word) : first_codes(word);
  // 128 more than a code is a byte from 0 on, and below the bits of 1024 a number that much larger.
  const uint32_t codes = __byte_perm(word ^ 0x80808080u, 0x64646464u, kLast ? 0x4342 : 0x4140);
  return sub_half(codes, 0x64806480u);
}

// Loads a row of queries, or zeros: words as they lie in memory, which come as f16 in a unit.
template <class S>
requires(S::kBytes) __device__ void load_queries(Softmax<S>& s, int half, const __nv_bfloat16* q) {
  using P = KeyPieces<S>;
  uint32_t most = 0;
  for_each_piece<S>([&](int, int, int element, int step) {
#pragma unroll
    for (int w = 0; w < P::kWords; ++w) {
      const auto* from = reinterpret_cast<const uint2*>(q + element + w * P::kWordElements);
      const uint2 pair = q ? *from : uint2{};
      s.q[step + w][half] = pair.x;
      s.q[step + w][half + 2] = pair.y;
#pragma unroll
      for (const uint32_t x : {pair.x, pair.y}) most = max(most, max(x & 0x7fff, x >> 16 & 0x7fff));
    }
  });
  most = max(most, __shfl_xor_sync(kAllLanes, most, 1));
  most = max(most, __shfl_xor_sync(kAllLanes, most, 2));
  const uint32_t exponent = min(127 + 14 + 127 - (most >> 7), 127u + 60);
  const float factor = __uint_as_float(exponent << 23);
  s.units.score[half] = inverse_power(factor);
#pragma unroll
  for (int i = 0; i < S::kDim / 16; ++i) {
#pragma unroll
    for (const int k : {half, half + 2})
      s.q[i][k] = pack_half(low_bf16(s.q[i][k]) * factor, high_bf16(s.q[i][k]) * factor);
  }
}

// The scales of keys or values of this lane's columns of a score fragment, of n = 0 and 1: bf16
// pairs.
template <class S>
__device__ __forceinline__ void load_scales(uint32_t (&pair)[2], const CacheArgs& c,
                                            const uint16_t* all, const uint16_t* stage, int head) {
  const int first = part_of_warp<S>().quarter * 16 + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < 2; ++n)
    pair[n] = c.scales == 0 ? all[head] * 0x10001u
                            : *reinterpret_cast<const uint32_t*>(stage + first + n * 8);
}

// Sums of codes and queries. Even and odd words have sums of their own, which halves the chain of
// dependent products.
template <class S>
__device__ __forceinline__ void multiply_key_codes(const Softmax<S>& s, const Shared<S>& shared,
                                                   int stage, float (&score)[2][4]) {
  using P = KeyPieces<S>;
  const int row = part_of_warp<S>().quarter * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  float part[2][2][4] = {};
  for_each_piece<S>([&](int panel, int byte, int, int step) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      uint32_t word[P::kWords];
      load_words<P::kPieceBytes, S::kPanelBytes>(
          word, shared.k[stage] + panel * kTile * S::kPanelBytes, row + n * 8, byte);
#pragma unroll
      for (int w = 0; w < P::kWords; ++w)
        mma_f16(part[w % 2][n], s.q[step + w], code_pair<S::kElement, false>(word[w]),
                code_pair<S::kElement, true>(word[w]));
    }
  });
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] = part[0][n][i] + part[1][n][i];
  }
}

template <class S>
__device__ __forceinline__ void multiply_value_codes(Softmax<S>& s, const ValueWords<S>& v,
                                                     const uint32_t (&weights)[4]) {
#pragma unroll
  for (int w = 0; w < ValueWords<S>::kLaneBytes / 4; ++w) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // columns 4 w + 2 pair and the next one
      const uint32_t bytes = pair == 0 ? 0x5140 : 0x7362;
      const uint32_t low = __byte_perm(v.word[0][w], v.word[1][w], bytes);
      const uint32_t high = __byte_perm(v.word[2][w], v.word[3][w], bytes);
      mma_f16(s.o[4 * w + 2 * pair], weights, code_pair<S::kElement, false>(low),
              code_pair<S::kElement, false>(high));
      mma_f16(s.o[4 * w + 2 * pair + 1], weights, code_pair<S::kElement, true>(low),
              code_pair<S::kElement, true>(high));
    }
  }
}

// Clears values that no row sees, and their scales: codes may be those of NaN there, and scales may
// be any bits. Where head_dim is 256, two warps write the same zeros over the scales of a position.
template <class S>
__device__ void clear_unseen_codes(const DecodeArgs& d, const Run& run, Shared<S>& shared,
                                   int stage, int t0) {
  constexpr int kChunks = S::kPanelBytes / 16;
  const WarpPart my = part_of_warp<S>();
  const int seen = first_seen(run.share, d.args.window);
  uint8_t* panel = shared.v[stage] + my.column / S::kPanelBytes * kTile * S::kPanelBytes;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < 16 * kChunks; i += 32) {
    const int row = my.quarter * 16 + i / kChunks, t = t0 + i / kChunks;
    if (t < run.share.kv_len && t >= seen) continue;
    *reinterpret_cast<uint4*>(panel + row * S::kPanelBytes + i % kChunks * 16) = uint4{};
    if (i % kChunks == 0) shared.scales.stage[stage].v[row] = 0;
  }
  fence_async();  // TMA writes here next
  __syncwarp();
}

// The largest scale of the lane's four positions, as far as the row sees them.
template <class S>
__device__ __forceinline__ uint32_t largest_scale(const uint32_t (&scales)[2],
                                                  const float (&score)[2][4], int half) {
  uint32_t most = 0;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if (score[n][2 * half] != -INFINITY) most = max(most, scales[n] & 0xffff);
    if (score[n][2 * half + 1] != -INFINITY) most = max(most, scales[n] >> 16);
  }
  return most;
}

// The same where all rows see all positions.
__device__ __forceinline__ uint32_t largest_scale(const uint32_t (&scales)[2]) {
  const uint32_t pair = __vmaxu2(scales[0], scales[1]);
  return max(pair & 0xffff, pair >> 16);
}

// Takes new maxima, and new units of values where `most` needs them; rows that need neither keep
// their bits.
template <class S>
__device__ __forceinline__ void take_larger(Softmax<S>& s, const float (&top)[2],
                                            const uint32_t (&most)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t scale = max(most[half], __shfl_xor_sync(kAllLanes, most[half], 1));
    scale = max(scale, __shfl_xor_sync(kAllLanes, scale, 2));
    const float units = scale > s.units.most_value[half] ? s.units.change(half, scale) : 1.0f;
    rescale(s, half, top[half], units);
  }
}

// Returns the probabilities of n = 0 and 1 times the values' scales, both halves of each, as the A
// operand of the second product.
template <class S>
__device__ __forceinline__ void make_weights(Softmax<S>& s, const float (&score)[2][4],
                                             const uint32_t (&scales)[2], uint32_t (&weights)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float base = s.top[half] == -INFINITY ? 0.0f : s.top[half];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float a = exp2_fast(score[n][2 * half] - base);
      const float b = exp2_fast(score[n][2 * half + 1] - base);
      s.sum[half] += a + b;
      weights[n * 2 + half] = pack_half(a * (low_bf16(scales[n]) * s.units.value[half]),
                                        b * (high_bf16(scales[n]) * s.units.value[half]));
    }
  }
}

// Attends to 16 positions from t0 on: this warp's quarter of the tile in that stage.
template <class S>
requires(S::kBytes) __device__ void attend_16(const DecodeArgs& d, const Run& run, Softmax<S>& s,
                                              int t0, Shared<S>& shared, int stage) {
  const CacheArgs& c = d.args.cache;
  const bool edge = is_edge(d, run, t0);
  if (edge && has_unseen(d, run, t0)) clear_unseen_codes(d, run, shared, stage, t0);
  uint32_t k_scales[2], v_scales[2];
  load_scales<S>(k_scales, c, c.k_scale, shared.scales.stage[stage].k, run.head);
  load_scales<S>(v_scales, c, c.v_scale, shared.scales.stage[stage].v, run.head);
  float score[2][4];
  multiply_key_codes(s, shared, stage, score);
  const ValueWords<S> values(shared, stage);  // on their way while weights are computed
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float by[2] = {low_bf16(k_scales[n]) * d.scale_log2,
                         high_bf16(k_scales[n]) * d.scale_log2};
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] *= by[i % 2] * s.units.score[i / 2];
  }
  uint32_t most[2];
  if (edge) {
    mask_scores(d, s, t0, score);
    most[0] = largest_scale<S>(v_scales, score, 0);
    most[1] = largest_scale<S>(v_scales, score, 1);
  } else {
    most[0] = most[1] = largest_scale(v_scales);
  }
  const float top[2] = {largest_score(s, score, 0), largest_score(s, score, 1)};
  if (__any_sync(kAllLanes, top[0] > s.top[0] || top[1] > s.top[1] ||
                                most[0] > s.units.most_value[0] || most[1] > s.units.most_value[1]))
    take_larger(s, top, most);
  uint32_t weights[4];
  make_weights(s, score, v_scales, weights);
  multiply_value_codes(s, values, weights);
}

}  // namespace skiff::cuda::decode
