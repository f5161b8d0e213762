// ops/cuda/attention/decode_shape.cuh -- the tiles of the split-KV decode kernel: their sizes, its
// shared memory, and which of them a block works on.
#pragma once
#include "ops/cuda/attention/attend_kernels.h"

namespace skiff::cuda::decode {

constexpr int kQuarters = 4;  // a tile's positions are divided among four warps
constexpr int kHalf = 8;      // an mma fragment holds rows i and i + 8
constexpr int kComputeBarrier = 1;

// What shared memory holds of a cache of floats, of bytes, or of nibbles.
template <int kDim, KvElement kElement>
constexpr int stages() {
  if (kElement == KvElement::kBf16) return kDim == 64 ? 6 : 3;
  if (kElement == KvElement::kU4) return kDim == 64 ? 12 : 8;
  return kDim == 64 ? 10 : 5;
}

template <int kDimension, KvElement kElements>
struct Shape {
  static constexpr int kDim = kDimension;
  static constexpr KvElement kElement = kElements;
  static constexpr bool kQuantized = is_quantized(kElement);
  static constexpr bool kBytes = kElementBits<kElement> == 8;    // decode_bytes.cuh
  static constexpr bool kNibbles = kElementBits<kElement> == 4;  // decode_nibbles.cuh
  static constexpr int kStages = stages<kDim, kElement>();
  static constexpr int kRuns = kStages < 8 ? 8 : 16;   // entries of Shared::runs; > kStages
  static constexpr int kBlocks = kDim == 256 ? 1 : 2;  // per multiprocessor
  // A position's head is cut into panels of at most 128 bytes, each with all rows of a tile.
  static constexpr int kHeadBytes = kDim * kElementBits<kElement> / 8;
  static constexpr int kPanelBytes = kHeadBytes < 128 ? kHeadBytes : 128;
  static constexpr int kPanels = kHeadBytes / kPanelBytes;
  static constexpr int kTileBytes = kTile * kHeadBytes;  // keys or values of one tile
  // Numbers beside each position's head: its scales, with zero points.
  static constexpr int kScales = !kQuantized                  ? 0
                                 : kElement == KvElement::kU4 ? kDim / kKvGroup * 2
                                                              : 1;
  static constexpr int kColumns = kDim == 256 ? 128 : kDim;  // value columns that one warp sums
  static constexpr int kWarps = kQuarters * kDim / kColumns;
  static constexpr int kComputing = 32 * kWarps;
  static constexpr int kThreads = kComputing + 32;
};

// Consecutive tiles of one kv head that one block works on.
struct Run {
  DecodeShare share;
  int head, first, tiles;  // `first`: index of the first tile within the share
  bool last;               // this is the block's last run
  int unit, units;         // its tiles (or pieces) are [unit, unit + units) of the list
};

// The scales of a tile.
template <class S>
struct Scales {
  alignas(16) uint16_t k[kTile * S::kScales], v[kTile * S::kScales];
};
template <class S>
struct ScaleRing {
  Scales<S> stage[S::kStages];
};
template <class S>
requires(!S::kQuantized) struct ScaleRing<S> {
};

template <class S>
struct Shared {
  uint8_t k[S::kStages][S::kTileBytes];
  uint8_t v[S::kStages][S::kTileBytes];
  [[no_unique_address]] ScaleRing<S> scales;
  float o[kQuarters][kHalf][S::kDim];
  float top[kQuarters][kPackedRows], sum[kQuarters][kPackedRows];
  uint64_t full[S::kStages], empty[S::kStages];
  Run runs[S::kRuns];  // written by the copying warp before a run's first tile is full
  int arrived_last;
};

// The runs that the plan gives this block. kPieces: the plan has pieces, and may have more blocks
// than the grid: then a block takes several parts of the list.
template <bool kPieces>
class TileWalk {
 public:
  __device__ TileWalk(const DecodeArgs& d) : d_(d), block_(static_cast<int>(blockIdx.x)) {
    begin_part();
    if constexpr (kPieces) find_part();
  }
  __device__ bool any() const { return at_ < end_; }
  __device__ bool next(Run& run) {
    if (!any()) return false;
    run.share = d_.plan.shares[share_];
    const int all = units_of(run.share), offset = at_ - run.share.base, first = offset % all;
    run.head = offset / all;
    run.unit = at_;
    run.units = undivided() ? all : min(all - first, end_ - at_);
    run.first = tile_of(run.share, first);
    run.tiles = tile_of(run.share, first + run.units) - run.first;
    at_ += run.units;
    if (run.head + 1 == d_.args.cache.kv_heads && first + run.units == all) ++share_;
    if constexpr (kPieces) find_part();
    run.last = !any();
    return true;
  }

 private:
  __device__ bool undivided() const { return kPieces && d_.plan.head->undivided; }
  __device__ int units_of(const DecodeShare& s) const { return units(s, kPieces ? d_.piece : 0); }
  // The first tile of a unit, as an index into the share.
  __device__ int tile_of(const DecodeShare& s, int unit) const {
    if (!kPieces) return unit;
    const int tile = piece_begin(piece_of(s.first_tile, d_.piece) + unit, d_.piece);
    return min(max(tile - s.first_tile, 0), s.tiles);
  }
  __device__ void begin_part() {
    const BlockBegin begin = d_.plan.begins[block_];
    at_ = begin.at;
    end_ = d_.plan.begins[block_ + 1].at;
    share_ = begin.share;
    if (undivided() && any()) skip_begun_head();
  }
  // Goes on to the next part of the list of which anything is left.
  __device__ void find_part() {
    while (!any() && block_ + static_cast<int>(gridDim.x) < d_.blocks) {
      block_ += static_cast<int>(gridDim.x);
      begin_part();
    }
  }
  // Goes on to the first head that begins in this part of the list.
  __device__ void skip_begun_head() {
    const DecodeShare& s = d_.plan.shares[share_];
    const int all = units_of(s), into = (at_ - s.base) % all;
    if (into == 0) return;
    at_ += all - into;
    if (at_ == s.base + all * d_.args.cache.kv_heads) ++share_;
  }

  const DecodeArgs& d_;
  int block_, at_, end_, share_;
};

// The first position that any row of a share sees.
__device__ inline int first_seen(const DecodeShare& s, int window) {
  return window > 0 ? max(0, s.kv_len - s.rows + 1 - window) : 0;
}

}  // namespace skiff::cuda::decode
