// ops/cuda/attention/decode_words.cuh -- how lanes of the split-KV decode kernel read a quantized
// cache from shared memory.
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

// The words of a stage's values of which a lane makes its fragments of 16 positions: those of
// positions first, first + 1, first + 8 and first + 9, where `first` is that of its columns of the
// weights.
template <class S>
struct ValueWords {
  static constexpr int kLaneBytes = S::kColumns * kElementBits<S::kElement> / 64;
  uint32_t word[4][kLaneBytes / 4];

  __device__ ValueWords(const Shared<S>& shared, int stage) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const WarpPart my = part_of_warp<S>();
    const int byte = my.column * kElementBits<S::kElement> / 8 + lane / 4 * kLaneBytes;
    const uint8_t* panel = shared.v[stage] + byte / S::kPanelBytes * kTile * S::kPanelBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_words<kLaneBytes, S::kPanelBytes>(word[i], panel,
                                             my.quarter * 16 + lane % 4 * 2 + i / 2 * 8 + i % 2,
                                             byte % S::kPanelBytes);
  }
};

}  // namespace skiff::cuda::decode
