// ops/cuda/mla/attend_copy.cuh -- TMA loads of latent attention over a bf16 cache. Each values
// warpgroup copies its own half of a tile (the right one also the rotated key) as soon as it has
// added the tile that lay there before, so that no warp waits for loads alone. The state of that
// lies in shared memory, because these warpgroups have no registers to spare.
#pragma once
#include "ops/cuda/mla/attend_shape.cuh"

namespace skiff::cuda::latent {

// Asks for the page number of the cursor's tile.
__device__ inline void look_up(const LatentPlanArgs& p, Cursor& c) {
  const Rows& rows = p.args.rows;
  const int32_t* from =
      rows.pages + c.seq * rows.pages_stride + c.tile * kLatentTile / p.args.cache.page_size;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&c.page)),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}

// Enters the item in which the cursor lies.
__device__ inline void enter(const LatentPlanArgs& p, Cursor& c) {
  const LatentItem item = p.items[c.item];
  c.seq = item.seq, c.tiles = item.tiles, c.stored = item.stored;
  c.tile = c.at - item.base;
}

__device__ inline void begin_loads(const LatentPlanArgs& p, Cursor& c) {
  const int width = p.head->width, group = static_cast<int>(blockIdx.x) / width;
  c.at = c.end = 0;
  if (group < p.blocks / width) {
    const LatentShare share = p.shares[group];
    c.at = share.begin, c.end = share.end, c.item = share.item;
  }
  if (c.at >= c.end) return;
  enter(p, c);
  look_up(p, c);
}

// Returns whether earlier steps stored the cursor's tile.
__device__ inline bool is_old(const Cursor& c) { return (c.tile + 1) * kLatentTile <= c.stored; }

// Copies a half (0: left) of the cursor's tile to a stage, and moves the cursor on.
template <int kWhich, class Tiles>
__device__ __forceinline__ void load_half(const LatentPlanArgs& p, const CUtensorMap& map,
                                          Shared<Tiles>& shared, int stage) {
  Cursor& c = shared.cursor[kWhich];
  const uint32_t to =
      kWhich == 0 ? shared_address(&shared.left[stage]) : shared_address(&shared.right[stage]);
  const uint32_t full = kWhich == 0 ? shared_address(&shared.left_full[stage])
                                    : shared_address(&shared.right_full[stage]);
  constexpr int kCopied = kHalfPanels + kWhich;
  barrier_expect(full, kCopied * kPanelBytes);
  asm volatile("cp.async.wait_all;" ::: "memory");
  const int page = *static_cast<volatile int*>(&c.page);
  const int in_page = c.tile * kLatentTile % p.args.cache.page_size;
#pragma unroll 1
  for (int i = 0; i < kCopied; ++i) {
    copy_box(to + static_cast<uint32_t>(i * kPanelBytes), &map, full,
             (kWhich * kHalfPanels + i) * 64, 0, in_page, page);
  }
  if (++c.at >= c.end) return;
  if (++c.tile == c.tiles) {
    ++c.item;
    enter(p, c);
  }
  look_up(p, c);
}

// Fills the stages of a half, run by one thread. Tiles that earlier steps stored are copied before
// griddepcontrol.wait.
template <int kWhich, class Tiles>
__device__ inline void first_loads(const LatentPlanArgs& p, const CUtensorMap& map,
                                   Shared<Tiles>& shared) {
  constexpr int kStages = kWhich == 0 ? kLeftStages : kRightStages;
  Cursor& c = shared.cursor[kWhich];
  begin_loads(p, c);
  bool waited = false;
  for (int stage = 0; stage < kStages && c.at < c.end; ++stage) {
    if (!waited && !is_old(c)) {
      wait_for_previous();
      waited = true;
    }
    load_half<kWhich>(p, map, shared, stage);
  }
}

}  // namespace skiff::cuda::latent
