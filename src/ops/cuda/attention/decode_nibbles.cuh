// ops/cuda/attention/decode_nibbles.cuh -- the split-KV decode kernel's products over a cache of
// nibbles: they become bf16 values in registers, in the order in which they lie in memory
// (decode_words.cuh).
#pragma once
#include "ops/cuda/attention/decode_words.cuh"
#include "ops/cuda/attention/quantized.cuh"

namespace skiff::cuda::decode {

__device__ __forceinline__ uint32_t bits_of(__nv_bfloat16 low, __nv_bfloat16 high) {
  return __bfloat16_as_ushort(low) | static_cast<uint32_t>(__bfloat16_as_ushort(high)) << 16;
}

template <class S>
requires(S::kNibbles) __device__
    void load_queries(Softmax<S>& s, int half, const __nv_bfloat16* q) {
  using P = KeyPieces<S>;
  for_each_piece<S>([&](int, int, int element, int step) {
#pragma unroll
    for (int w = 0; w < P::kWords; ++w) {
#pragma unroll
      for (int t = 0; t < P::kSteps; ++t) {
        // Nibbles 0 and 4, 1 and 5, then 2 and 6, 3 and 7.
        const __nv_bfloat16* e = q + element + w * P::kWordElements + 2 * t;
        const int at = step + w * P::kSteps + t;
        s.q[at][half] = q ? bits_of(e[0], e[4]) : 0;
        s.q[at][half + 2] = q ? bits_of(e[1], e[5]) : 0;
      }
    }
  });
}

// The scale of `element` of a position's head and, in the high half, its zero point.
template <class S>
__device__ __forceinline__ uint32_t scale_of(const uint16_t* scales, int position, int element) {
  return reinterpret_cast<const uint32_t*>(
      scales)[position * (S::kDim / kKvGroup) + element / kKvGroup];
}

template <class S>
requires(S::kNibbles) __device__
    void multiply_keys(const DecodeArgs&, const Run&, Softmax<S>& s, Shared<S>& shared, int stage,
                       float (&score)[2][4]) {
  using P = KeyPieces<S>;
  const int row = part_of_warp<S>().quarter * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  for_each_piece<S>([&](int panel, int byte, int element, int step) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int position = row + n * 8;
      uint32_t word[P::kWords];
      load_words<P::kPieceBytes, S::kPanelBytes>(
          word, shared.k[stage] + panel * kTile * S::kPanelBytes, position, byte);
      const uint32_t own = scale_of<S>(shared.scales.stage[stage].k, position, element);
      const PairScale by = pair_scale<S::kElement>(own, own);
#pragma unroll
      for (int w = 0; w < P::kWords; ++w) {
#pragma unroll
        for (int t = 0; t < P::kSteps; ++t)
          mma_bf16(score[n], s.q[step + w * P::kSteps + t], nibbles(word[w], 2 * t, by),
                   nibbles(word[w], 2 * t + 1, by));
      }
    }
  });
}

// Clears the scales: elements are finite numbers whatever their bits. Where head_dim is 256, two
// warps share positions and both write the same zeros before they read them, which racecheck
// reports.
template <class S>
requires(S::kNibbles) __device__
    void clear_unseen(Shared<S>& shared, int stage, int t0, int seen, int end) {
  const int quarter = part_of_warp<S>().quarter;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < 16 * S::kScales; i += 32) {
    const int row = i / S::kScales, t = t0 + row;
    if (t >= end || t < seen) shared.scales.stage[stage].v[quarter * 16 * S::kScales + i] = 0;
  }
}

// The pairs of two positions that the lane's n-th fragment takes, from their words.
__device__ __forceinline__ uint32_t value_pair(uint32_t first, uint32_t second, int n,
                                               const PairScale& by) {
  return nibbles(__byte_perm(first, second, n % 8 < 4 ? 0x5410 : 0x7632), n % 4, by);
}

// Probabilities are rounded to bf16, as in prefills: what that adds is less than what the elements
// lack.
template <class S>
requires(S::kNibbles) __device__
    void multiply_values(const DecodeArgs&, const Run&, Softmax<S>& s, Shared<S>& shared, int stage,
                         const uint32_t (&weights)[4]) {
  constexpr int kWordElements = KeyPieces<S>::kWordElements;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WarpPart my = part_of_warp<S>();
  const int first = my.quarter * 16 + lane % 4 * 2;
  const int element = my.column + lane / 4 * (S::kColumns / 8);
  const ValueWords<S> v(shared, stage);
  PairScale by[2];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const uint16_t* scales = shared.scales.stage[stage].v;
    by[pair] = pair_scale<S::kElement>(scale_of<S>(scales, first + 8 * pair, element),
                                       scale_of<S>(scales, first + 8 * pair + 1, element));
  }
#pragma unroll
  for (int n = 0; n < S::kColumns / 8; ++n) {
    const int w = n / kWordElements;
    mma_bf16(s.o[n], weights, value_pair(v.word[0][w], v.word[1][w], n, by[0]),
             value_pair(v.word[2][w], v.word[3][w], n, by[1]));
  }
}

}  // namespace skiff::cuda::decode
