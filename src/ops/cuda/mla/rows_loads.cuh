// ops/cuda/mla/rows_loads.cuh -- copies of tiles of 8-bit rows. Two warps that multiply values ask
// for them, a half of a tile each, and what a warp does for that holds up its warpgroup: so where
// tiles lie is looked up for kLot of them at a time, a lane each, and a half takes one load and one
// copy.
#pragma once
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/mla/rows_shape.cuh"

namespace skiff::cuda::latent {

// Finds out where kLot tiles of a block lie, from tile n on, a multiple of kLot. Run by a whole
// warp.
template <class Tiles>
__device__ __forceinline__ void look_up_rows(const LatentPlanArgs& p, RowsShared<Tiles>& shared,
                                             uint32_t n) {
  RowSources& sources = shared.sources;
  const int lane = static_cast<int>(threadIdx.x) % 32, at = sources.begin + n + lane;
  const uint32_t place = n % (2 * kLot) + lane;
  int i = sources.item;
  __syncwarp();
  if (at < sources.end) {
    LatentItem item = p.items[i];
    while (at >= item.base + item.tiles) item = p.items[++i];
    const Rows& rows = p.args.rows;
    const LatentCache& cache = p.args.cache;
    const int t0 = (at - item.base) * kLatentTile;
    const int page = __ldg(rows.pages + item.seq * rows.pages_stride + t0 / cache.page_size);
    sources.from[place] = cache.data + page * cache.page_bytes + t0 % cache.page_size * kRowBytes;
    sources.is_new[place] = t0 + kLatentTile > item.stored;
    if (lane == kLot - 1) sources.item = i;
  }
  __syncwarp();
}

template <class Tiles>
__device__ __forceinline__ void begin_sources(const LatentPlanArgs& p, RowsShared<Tiles>& shared) {
  RowSources& sources = shared.sources;
  if (threadIdx.x % 32 == 0) {
    const int width = p.head->width, group = static_cast<int>(blockIdx.x) / width;
    LatentShare share = {};
    if (group < p.blocks / width) share = p.shares[group];
    sources.begin = share.begin, sources.end = share.end, sources.item = share.item;
  }
  __syncwarp();
  look_up_rows(p, shared, 0);
}

// Fills all stages, run by a whole warp. Tiles that earlier steps stored are copied before
// griddepcontrol.wait.
template <class Tiles>
__device__ __forceinline__ void first_tiles(const LatentPlanArgs& p, RowsShared<Tiles>& shared) {
  const RowSources& sources = shared.sources;
  begin_sources(p, shared);
  if (elected()) {
    bool waited = false;
    for (int n = 0; n < Tiles::kStages && sources.begin + n < sources.end; ++n) {
      if (!waited && sources.is_new[n]) {
        wait_for_previous();
        waited = true;
      }
      const uint32_t full = shared_address(&shared.full[n]);
      barrier_expect(full, kTileBytes);
      copy_bytes(shared_address(shared.rows[n]), sources.from[n], kTileBytes, full, Keep::kNormal);
    }
  }
  __syncwarp();
}

// Asks for a half of tile n, in the place of the tile `kStages` before it, of which all have read
// that half, or nearly. Run by a whole warp, another for each half; that of the right half looks up
// a lot half a lot ahead, so that neither warp, which may be a few tiles apart, still needs what
// lies in its place.
template <class Tiles>
__device__ __forceinline__ void next_half(const LatentPlanArgs& p, RowsShared<Tiles>& shared,
                                          uint32_t n, int stage, uint32_t phase, int half) {
  if (half == 1 && n % kLot == kLot / 2) look_up_rows(p, shared, n + kLot / 2);
  if (elected()) {
    const uint32_t full = shared_address(&shared.full[stage]);
    const std::byte* from = shared.sources.from[n % (2 * kLot)] + half * kHalfBytes;
    barrier_wait(shared_address(&shared.done[stage][half]), phase);
    if (half == 0) barrier_expect(full, kTileBytes);
    copy_bytes(shared_address(shared.rows[stage]) + half * kHalfBytes, from, kHalfBytes, full,
               Keep::kNormal);
  }
  __syncwarp();
}

}  // namespace skiff::cuda::latent
