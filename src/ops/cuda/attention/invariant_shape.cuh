// ops/cuda/attention/invariant_shape.cuh -- the tiles, the shared memory and the ring of the kernel
// that decodes in pieces (plan.h) over a bf16 cache.
#pragma once
#include "ops/cuda/attention/decode_shape.cuh"
#include "ops/cuda/attention/key_tiles.cuh"

namespace skiff::cuda::decode {

// The ring's slots hold kTile positions of a head, keys or values. A tile of keys (key_tiles.cuh)
// takes a slot for each of its halves, then as many for their values.
// kAlone: one block has a multiprocessor to itself and twice the slots, so that what few blocks
// need is on its way at once.
template <int kDimension, bool kAlone>
struct Invariant {
  static constexpr int kDim = kDimension;
  static constexpr int kHalves = kKeys<kDim> / kTile;
  static constexpr int kSlotBytes = kTile * kDim * 2;
  static constexpr int kBlocks = kDim == 256 || kAlone ? 1 : 2;       // per multiprocessor
  static constexpr int kSlots = (kBlocks == 1 ? 2 : 1) * 768 / kDim;  // a tile has at most 4
  static constexpr int kRuns = kSlots / 2 + 2;                        // a run has at least 2
  // Each warp takes the scores of a quarter of a tile's keys, and sums a quarter of the columns.
  static constexpr int kWarps = kSums;
  static constexpr int kWarpKeys = kKeys<kDim> / kWarps;
  static constexpr int kColumns = kDim / kWarps;
  static constexpr int kComputing = 32 * kWarps;
  static constexpr int kThreads = kComputing + 32;
};

template <class S>
struct InvariantShared {
  uint8_t slot[S::kSlots][S::kSlotBytes];
  uint4 weights[kKeys<S::kDim> / 16][32];     // mma operands: 16 keys of each lane
  float4 top[kPackedRows], sum[kPackedRows];  // each of the four warps has one float
  uint64_t full[S::kSlots], empty[S::kSlots];
  Run runs[S::kRuns];  // written by the copying warp before a run's first slot is full
  int arrived_last;
};

// A slot of the ring, and the parity of its barriers' phase in this round.
template <int kSlots>
struct SlotRing {
  int slot = 0;
  uint32_t phase = 0;
  __device__ SlotRing after(int n) const {
    const bool wraps = slot + n >= kSlots;
    return {wraps ? slot + n - kSlots : slot + n, phase ^ (wraps ? 1u : 0u)};
  }
};

// A tile of keys of a run, whose halves [low, high) lie in the run.
template <class S>
struct KeyTile {
  int index, low, high;

  __device__ static int first_of(const Run& run) {
    return (run.share.first_tile + run.first) / S::kHalves;
  }
  __device__ KeyTile(const Run& run, int index) : index(index) {
    const int first = run.share.first_tile + run.first, before = index * S::kHalves;
    low = max(first - before, 0);
    high = min(first + run.tiles - before, S::kHalves);
  }
  __device__ bool any() const { return high > 0; }
  __device__ int halves() const { return high - low; }
  __device__ int position() const { return index * kKeys<S::kDim>; }
};

}  // namespace skiff::cuda::decode
