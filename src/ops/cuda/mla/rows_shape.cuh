// ops/cuda/mla/rows_shape.cuh -- shared memory and barriers of latent attention over 8-bit rows
// (rows_kernel.cuh).
#pragma once
#include "ops/cuda/mla/attend_shape.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

// A row of 512 + 64 elements (ops/latent_row.h).
constexpr int kRowBytes = 656, kScalesAt = 512, kRopeAt = 528;
constexpr int kRowsGroups = 4;  // warpgroups: two of scores, two of values

// What a block works with that has up to so many query vectors: 16, 32 or 64.
template <int kMost>
struct RowTiles {
  static constexpr int kVectors = kMost;
  static constexpr int kStages = kMost <= 32 ? 4 : 3;  // tiles of rows in shared memory
  static constexpr int kPlaces = 3;                    // tiles of weights
  static constexpr int kTurns = kPlaces + 1;           // runs that warpgroups may be working on
  // Loads from shared memory whose elements wgmma multiplies at a time: with 64 vectors a thread
  // has registers for one only. Registers are those of a thread of each kind of warpgroup.
  static constexpr int kLoads = kMost <= 32 ? 2 : 1, kSteps = 2 * kLoads;
  static constexpr int kScoresSteps = kMost <= 32 ? kSteps : 1;
  static constexpr int kScoresRegisters = kMost <= 32 ? 104 : 80;
  static constexpr int kValuesRegisters = 256 - kScoresRegisters;
  static constexpr int kArrivingLanes = 1;  // lanes of a warp that arrive at a barrier for it
};

constexpr int kTileBytes = kLatentTile * kRowBytes, kHalfBytes = kTileBytes / 2;
constexpr int kScaleGroups = kRank / 128, kGroupsOfHalf = kScaleGroups / 2;
// Named barriers: one of each warpgroup, and one of the two of scores and of the two of values.
constexpr int kGroupBarrier = 1, kBothScoresBarrier = kGroupBarrier + kRowsGroups;
constexpr int kBothValuesBarrier = kBothScoresBarrier + 1;

// A block's tiles, and where kLot of them lie, as many as a warp has lanes.
constexpr int kLot = 32;
struct RowSources {
  const std::byte* from[kLot];
  bool is_new[kLot];  // this step stores rows of it
  int begin, end;     // the block's tiles, in the list of all
  int item;           // that of the last tile looked up
};

// Weights are [vector, position], as wgmma takes them. With a tile of weights go the scales of its
// pairs of positions (scale_of), the factors that rescale earlier sums of vectors and of groups of
// columns, and whether any is not 1.
template <class Tiles>
struct RowsShared {
  static constexpr int kVectors = Tiles::kVectors, kPlaces = Tiles::kPlaces;
  uint8_t q[kPanels][kVectors * 128];
  uint8_t p[kPlaces][kVectors * 128];
  uint8_t rows[Tiles::kStages][kTileBytes];
  alignas(16) uint32_t scales[kPlaces][kScaleGroups][4][8];
  alignas(16) float keep[kPlaces][kVectors];
  float keep_group[kPlaces][kScaleGroups];
  int grown[kPlaces];
  alignas(16) float unit[kVectors];  // a vector's scores are multiples of its unit
  // The maxima of a tile's scores and of its scales, and those that are known in each run.
  float top_of_warp[kWarpsOfGroup][kVectors];
  float largest_of_warp[kWarpsOfGroup][kScaleGroups];
  alignas(16) float top[Tiles::kTurns][kVectors];
  alignas(16) float largest[Tiles::kTurns][kScaleGroups];
  float sum[2][2][kVectors];  // sums of weights over each half of the positions
  Run runs[Tiles::kTurns];
  int all_see[Tiles::kTurns];        // the last position that all vectors of a run see
  RowSources sources[2];             // one for each warp that copies halves of tiles
  uint64_t full[Tiles::kStages];     // a tile of rows is there
  uint64_t done[Tiles::kStages][2];  // all warps have read this half of it
  uint64_t p_full[kPlaces];          // weights, and what goes with them, are there
  uint64_t p_done[kPlaces];          // both warpgroups of values have added the tile
  uint64_t known[2];                 // a warpgroup of scores has compared its tile with the maxima
};
static_assert(sizeof(RowsShared<RowTiles<32>>) <= 232448);
static_assert(sizeof(RowsShared<RowTiles<64>>) <= 232448);
static_assert(kTileBytes % 1024 == 0);

template <class Tiles>
__device__ inline void init_barriers(RowsShared<Tiles>& shared) {
  const auto init = [](auto& barriers, int arrivals) {
    for (uint64_t& barrier : barriers) barrier_init(shared_address(&barrier), arrivals);
  };
  constexpr int kOfGroup = kWarpsOfGroup * Tiles::kArrivingLanes;
  init(shared.full, 2);  // its halves
  // Two warpgroups read a half's values, and two warps its keys.
  for (auto& halves : shared.done) init(halves, 2 * kOfGroup + 2 * Tiles::kArrivingLanes);
  init(shared.p_full, kOfGroup);
  init(shared.known, kOfGroup);
  init(shared.p_done, 2 * kOfGroup);
  barrier_init_done();
}

// The number of a thread within its warpgroup; with 64 vectors what follows from it is computed
// again rather than held in registers.
template <class Tiles>
__device__ __forceinline__ int thread_of() {
  return Tiles::kVectors <= 32 ? static_cast<int>(threadIdx.x) % kGroupThreads : own_thread();
}

// A number that all lanes have, not negative: the compiler then knows that, and keeps what follows
// from it in uniform registers, where wgmma's operands must be.
__device__ __forceinline__ int of_warp(int x) {
  return static_cast<int>(__reduce_max_sync(kAllLanes, static_cast<uint32_t>(x)));
}

// Where the scale of a position of a tile lies: a thread that multiplies values has the pairs of
// positions 2 * (lane % 4) of every eight, one after the other.
template <class Tiles>
__device__ __forceinline__ uint16_t* scale_of(RowsShared<Tiles>& shared, int stage, int group,
                                              int position) {
  uint32_t* pair = &shared.scales[stage][group][position % 8 / 2][position / 8];
  return reinterpret_cast<uint16_t*>(pair) + position % 2;
}

// A warp's lanes have read or written what others wait for: one of them arrives for all.
template <class Tiles>
__device__ __forceinline__ void warp_arrives(uint64_t& barrier) {
  __syncwarp();
  if (arrives<Tiles>()) barrier_arrive(shared_address(&barrier));
}

}  // namespace skiff::cuda::latent
