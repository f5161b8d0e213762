// ops/cuda/mla/attend_shape.cuh -- the tiles of the latent attention kernel, its shared memory, and
// which of them a block works on.
#pragma once
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/mla/attend_kernels.h"

namespace skiff::cuda::latent {

constexpr int kRank = 512, kRope = 64, kHalf = kRank / 2;  // a values warpgroup has half the rank
constexpr int kPanels = (kRank + kRope) / 64, kHalfPanels = kHalf / 64;
constexpr int kHeldPanels = 5, kSharedPanels = kPanels - kHeldPanels;  // panels of queries
constexpr int kPanelBytes = kLatentTile * 128;  // 64 columns of a tile, in the 128-byte swizzle
constexpr int kLeftStages = 2, kRightStages = 3;
constexpr int kTurns = 3;  // runs that the three warpgroups may be working on
constexpr int kGroupThreads = 128, kWarpsOfGroup = 4;
constexpr int kAttendGroups = 3;  // warpgroups: one of scores, two of values
// Named barriers: one of the scores warpgroup, and one of each values warpgroup.
constexpr int kScoresBarrier = 1, kOwnBarrier = 2;

struct CopiedTiles {
  static constexpr int kArrivingLanes = 1;  // lanes of a warp that arrive at a barrier for it
};

// A stage of a ring, and the parity of its barriers' phase in this round.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// Consecutive tiles of one item that a block works on.
struct Run {
  LatentItem item;
  int tile, tiles;  // `tile`: the first, within the item
  int last;         // this is the block's last run
};

// How far the loads of a warpgroup that multiplies values have come.
struct Cursor {
  int at, end, item;     // in the list of tiles
  int seq, tile, tiles;  // in that item
  int stored;
  int page;  // the page of the tile at `at`, once cp.async has written it
};

// The last panel, the rotated keys, is not needed once the scores are known: the weights
// take its place.
struct LeftHalf {
  uint8_t panels[kHalfPanels][kPanelBytes];
};
struct RightHalf {
  uint8_t panels[kHalfPanels][kPanelBytes];
  uint8_t rope[kPanelBytes];
};
static_assert(kPanelBytes == kLatentRows * kLatentTile * 2);

template <class Tiles>
struct Shared {
  LeftHalf left[kLeftStages];
  RightHalf right[kRightStages];
  uint8_t q[kSharedPanels][kPanelBytes];  // the queries that are not in registers
  float keep[kRightStages][kLatentRows];  // factors that rescale earlier sums
  float top[kTurns][kLatentRows], sum[kTurns][kLatentRows];  // each run's maximum and sum
  Run runs[kTurns];
  Cursor cursor[2];
  uint64_t left_full[kLeftStages], right_full[kRightStages];  // a half is there
  uint64_t p_full[kRightStages];    // weights and factors of a tile are there
  uint64_t left_done[kLeftStages];  // its warpgroup has added the half
  uint64_t all_done[kRightStages];  // both warpgroups have added the tile
};
static_assert(sizeof(Shared<CopiedTiles>) <= 232448);

// Makes the barriers of a block, by one thread.
template <class Tiles>
__device__ inline void init_barriers(Shared<Tiles>& shared) {
  const auto init = [](auto& barriers, int arrivals) {
    for (uint64_t& barrier : barriers) barrier_init(shared_address(&barrier), arrivals);
  };
  constexpr int kLanes = Tiles::kArrivingLanes;
  init(shared.left_full, 1);
  init(shared.right_full, 1);
  init(shared.p_full, kWarpsOfGroup * kLanes);
  init(shared.left_done, kWarpsOfGroup * kLanes);
  init(shared.all_done, 2 * kWarpsOfGroup * kLanes);
  barrier_init_done();
}

// Returns whether this lane arrives for its warp, once __syncwarp() has ordered what the other
// lanes did before its arrival. With kArrivingLanes = 32 each lane arrives for itself, which orders
// the same and which racecheck follows (tests/device/racecheck_latent.cu).
template <class Tiles>
__device__ __forceinline__ bool arrives() {
  return threadIdx.x % (32 / Tiles::kArrivingLanes) == 0;
}

// One block's partial result of an item that several groups share.
struct Part {
  float o[kLatentRows][kRank];
  float top[kLatentRows], sum[kLatentRows];
};

// Where a block stores it: the results of an item that began in another group, and of one that
// another group ends.
__device__ __forceinline__ Part* part_of(const LatentPlanArgs& p, int block, bool begins) {
  return reinterpret_cast<Part*>(p.parts) + 2 * block + (begins ? 1 : 0);
}

// The number of a thread within its warpgroup. The compiler does not know that it is the same at
// each call, so that what follows from it is not computed before a loop and spilled.
__device__ __forceinline__ int own_thread() {
  int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  asm volatile("" : "+r"(thread));
  return thread;
}

// The runs that the plan gives this block.
class Walk {
 public:
  __device__ explicit Walk(const LatentPlanArgs& p) : p_(p) {
    const int width = p.head->width, group = static_cast<int>(blockIdx.x) / width;
    at_ = end_ = item_ = 0;
    if (group >= p.blocks / width) return;
    const LatentShare share = p.shares[group];
    at_ = share.begin, end_ = share.end, item_ = share.item;
  }
  __device__ bool next(Run& run) {
    if (at_ >= end_) return false;
    run.item = p_.items[item_++];
    run.tile = at_ - run.item.base;
    run.tiles = min(run.item.tiles - run.tile, end_ - at_);
    at_ += run.tiles;
    run.last = at_ >= end_;
    return true;
  }

 private:
  const LatentPlanArgs& p_;
  int at_, end_, item_;
};

// Reads where a Walk begins, three loads one behind the other, so that it lies in the first-level
// cache when the Walk is made. For before the wait: the plan is visible then (attend_kernel.cuh).
__device__ __forceinline__ void read_ahead(const LatentPlanArgs& p) {
  Run run;
  if (Walk(p).next(run)) asm volatile("" ::"r"(run.item.seq), "r"(run.item.base));
}

// The tiles of this block.
__device__ inline int tiles_of_block(const LatentPlanArgs& p) {
  const int width = p.head->width, index = static_cast<int>(blockIdx.x) / width;
  return index < p.blocks / width ? p.shares[index].end - p.shares[index].begin : 0;
}

// Which half of the items this block has, where a group is two blocks.
__device__ inline int part_of_item(const LatentPlanArgs& p) {
  return static_cast<int>(blockIdx.x) % p.head->width;
}

}  // namespace skiff::cuda::latent
