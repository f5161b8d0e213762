// ops/cuda/attention/decode_quantized.cuh -- the split-KV decode kernel's products where the cache
// is quantized: elements become bf16 values in registers, in the order in which they lie in memory
// (those of e4m3 f16 numbers: decode_float8.cuh).
//
// A product does not care in which order it sums, so a lane takes whole words of a head, and
// queries are loaded in the same order. Of a position's keys lane j takes the j-th quarter of each
// panel; of a position's values lane n the n-th eighth of the warp's columns, so its n-th fragment
// of the result has every eighth column (column_of()). So all loads are of 4 to 16 bytes, and of
// rows and chunks in different banks.
#pragma once
#include "ops/cuda/attention/decode_compute.cuh"

namespace skiff::cuda::decode {

// The offset of 16-byte chunk `chunk` of row `row` in a panel, as TMA swizzles rows of kBytes.
template <int kBytes>
__device__ __forceinline__ int panel_offset(int row, int chunk) {
  constexpr int kRowsOfSwizzle = 128 / kBytes, kChunks = kBytes / 16;
  return row * kBytes + (chunk ^ row / kRowsOfSwizzle % kChunks) * 16;
}

// Loads kBytes from byte `at` on of a row of a panel; `at` is a multiple of kBytes.
template <int kBytes, int kPanelBytes>
__device__ __forceinline__ void load_words(uint32_t (&to)[kBytes / 4], const uint8_t* panel,
                                           int row, int at) {
  const uint8_t* from = panel + panel_offset<kPanelBytes>(row, at / 16) + at % 16;
  if constexpr (kBytes == 4) {
    to[0] = *reinterpret_cast<const uint32_t*>(from);
  } else if constexpr (kBytes == 8) {
    const auto x = *reinterpret_cast<const uint2*>(from);
    to[0] = x.x, to[1] = x.y;
  } else {
    const auto x = *reinterpret_cast<const uint4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }
}

// The sizes of what a lane reads of a position's keys: kPieces pieces of kPieceBytes in each panel.
template <class S>
struct KeyPieces {
  static constexpr int kLaneBytes = S::kPanelBytes / 4;
  static constexpr int kPieceBytes = kLaneBytes < 16 ? kLaneBytes : 16;
  static constexpr int kPieces = kLaneBytes / kPieceBytes;
  static constexpr int kWords = kPieceBytes / 4;
  static constexpr int kWordElements = 32 / kElementBits<S::kElement>;
  static constexpr int kSteps = kWordElements / 4;  // mma steps that use one word of each lane
};

// Calls f(panel, byte in the panel, first element, first product) for each piece of this lane.
template <class S, class F>
__device__ __forceinline__ void for_each_piece(F f) {
  using P = KeyPieces<S>;
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int panel = 0; panel < S::kPanels; ++panel) {
#pragma unroll
    for (int piece = 0; piece < P::kPieces; ++piece) {
      const int byte = lane * P::kLaneBytes + piece * P::kPieceBytes;
      f(panel, byte, (panel * S::kPanelBytes + byte) / 4 * P::kWordElements,
        (panel * P::kPieces + piece) * P::kWords * P::kSteps);
    }
  }
}

__device__ __forceinline__ uint32_t bits_of(__nv_bfloat16 low, __nv_bfloat16 high) {
  return __bfloat16_as_ushort(low) | static_cast<uint32_t>(__bfloat16_as_ushort(high)) << 16;
}

template <class S>
requires(S::kQuantized && !S::kFloat8) __device__
    void load_queries(Softmax<S>& s, int half, const __nv_bfloat16* q) {
  using P = KeyPieces<S>;
  for_each_piece<S>([&](int, int, int element, int step) {
#pragma unroll
    for (int w = 0; w < P::kWords; ++w) {
#pragma unroll
      for (int t = 0; t < P::kSteps; ++t) {
        // Bytes 0 and 2, then 1 and 3; or nibbles 0 and 4, 1 and 5, then 2 and 6, 3 and 7.
        const __nv_bfloat16* e = q + element + w * P::kWordElements + 2 * t;
        constexpr int kApart = 2 * P::kSteps;
        const int at = step + w * P::kSteps + t;
        s.q[at][half] = q ? bits_of(e[0], e[kApart]) : 0;
        s.q[at][half + 2] = q ? bits_of(e[1], e[kApart + 1]) : 0;
      }
    }
  });
}

// The scale of `element` of a position's head, with its zero point in the high half of kU4's.
template <class S>
__device__ __forceinline__ uint32_t scale_of(const uint16_t* scales, int position, int element) {
  if constexpr (S::kElement == KvElement::kU4)
    return reinterpret_cast<const uint32_t*>(
        scales)[position * (S::kDim / kKvGroup) + element / kKvGroup];
  else
    return scales[position];
}

// scale_of() for keys or values of a stage, or the fixed scale.
template <class S>
struct ScaleReader {
  const uint16_t* scales;
  uint32_t fixed;
  bool is_fixed;

  __device__ ScaleReader(const CacheArgs& c, const uint16_t* all, const uint16_t* stage, int head)
      : scales(stage), fixed(0), is_fixed(S::kElement != KvElement::kU4 && c.scales == 0) {
    if (is_fixed) fixed = all[head];
  }
  __device__ __forceinline__ uint32_t operator()(int position, int element) const {
    return is_fixed ? fixed : scale_of<S>(scales, position, element);
  }
};

// The two operands that a word of keys becomes for product `t` of those that take it.
template <class S>
__device__ __forceinline__ void key_pairs(uint32_t (&b)[2], uint32_t word, int t,
                                          const PairScale& by) {
  if constexpr (S::kElement == KvElement::kU4) {
    b[0] = nibbles(word, 2 * t, by);
    b[1] = nibbles(word, 2 * t + 1, by);
  } else {
    b[0] = even_bytes<S::kElement>(word, by);
    b[1] = odd_bytes<S::kElement>(word, by);
  }
}

template <class S>
requires(S::kQuantized) __device__
    void multiply_keys(const DecodeArgs& d, const Run& run, Softmax<S>& s, Shared<S>& shared,
                       int stage, float (&score)[2][4]) {
  using P = KeyPieces<S>;
  const int row = part_of_warp<S>().quarter * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const ScaleReader<S> scale(d.args.cache, d.args.cache.k_scale, shared.scales.stage[stage].k,
                             run.head);
  for_each_piece<S>([&](int panel, int byte, int element, int step) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int position = row + n * 8;
      uint32_t word[P::kWords];
      load_words<P::kPieceBytes, S::kPanelBytes>(
          word, shared.k[stage] + panel * kTile * S::kPanelBytes, position, byte);
      const uint32_t own = scale(position, element);
      const PairScale by = pair_scale<S::kElement>(own, own);
#pragma unroll
      for (int w = 0; w < P::kWords; ++w) {
#pragma unroll
        for (int t = 0; t < P::kSteps; ++t) {
          uint32_t b[2];
          key_pairs<S>(b, word[w], t, by);
          mma_bf16(score[n], s.q[step + w * P::kSteps + t], b[0], b[1]);
        }
      }
    }
  });
}

// Clears the scales: elements are finite numbers whatever their bits. Where head_dim is 256, two
// warps share positions and both write the same zeros before they read them, which racecheck
// reports.
template <class S>
requires(S::kQuantized) __device__
    void clear_unseen(Shared<S>& shared, int stage, int t0, int seen, int end) {
  const int quarter = part_of_warp<S>().quarter;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < 16 * S::kScales; i += 32) {
    const int row = i / S::kScales, t = t0 + row;
    if (t >= end || t < seen) shared.scales.stage[stage].v[quarter * 16 * S::kScales + i] = 0;
  }
}

// The pairs of two positions that the lane's n-th fragment takes, from their words.
template <class S>
__device__ __forceinline__ uint32_t value_pair(uint32_t first, uint32_t second, int n,
                                               const PairScale& by) {
  if constexpr (S::kElement == KvElement::kU4) {
    return nibbles(__byte_perm(first, second, n % 8 < 4 ? 0x5410 : 0x7632), n % 4, by);
  } else {
    const uint32_t bytes = __byte_perm(first, second, n % 4 < 2 ? 0x5410 : 0x7632);
    return n % 2 == 0 ? even_bytes<S::kElement>(bytes, by) : odd_bytes<S::kElement>(bytes, by);
  }
}

// Probabilities are rounded to bf16, as in prefills: what that adds is less than what the elements
// lack.
template <class S>
requires(S::kQuantized) __device__
    void multiply_values(const DecodeArgs& d, const Run& run, Softmax<S>& s, Shared<S>& shared,
                         int stage, const uint32_t (&weights)[4]) {
  constexpr int kLaneBytes = S::kColumns * kElementBits<S::kElement> / 64;
  constexpr int kWordElements = KeyPieces<S>::kWordElements;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WarpPart my = part_of_warp<S>();
  const int first = my.quarter * 16 + lane % 4 * 2;
  const int element = my.column + lane / 4 * (S::kColumns / 8);
  const int byte = element * kElementBits<S::kElement> / 8;
  const ScaleReader<S> scale(d.args.cache, d.args.cache.v_scale, shared.scales.stage[stage].v,
                             run.head);
  // The words are of positions first, first + 1, first + 8 and first + 9.
  uint32_t word[4][kLaneBytes / 4];
  PairScale by[2];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_words<kLaneBytes, S::kPanelBytes>(
          word[2 * pair + i], shared.v[stage] + byte / S::kPanelBytes * kTile * S::kPanelBytes,
          first + 8 * pair + i, byte % S::kPanelBytes);
    by[pair] = pair_scale<S::kElement>(scale(first + 8 * pair, element),
                                       scale(first + 8 * pair + 1, element));
  }
#pragma unroll
  for (int n = 0; n < S::kColumns / 8; ++n) {
    const int w = n / kWordElements;
    mma_bf16(s.o[n], weights, value_pair<S>(word[0][w], word[1][w], n, by[0]),
             value_pair<S>(word[2][w], word[3][w], n, by[1]));
  }
}

}  // namespace skiff::cuda::decode
