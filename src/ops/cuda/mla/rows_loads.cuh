// ops/cuda/mla/rows_loads.cuh -- copies of tiles of 8-bit rows. Two warps that multiply values ask
// for them, a half of a tile each, and what a warp does for that holds up its warpgroup: so each
// looks up where tiles lie for kLot of them at a time, a lane each, and a half takes one load and
// one copy.
#pragma once
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/mla/rows_shape.cuh"

namespace skiff::cuda::latent {

// Finds out where kLot tiles of a block lie, from tile n on. Run by a whole warp.
__device__ __forceinline__ void look_up_rows(const LatentPlanArgs& p, RowSources& sources, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32, at = sources.begin + n + lane;
  int i = sources.item;
  __syncwarp();
  if (at < sources.end) {
    LatentItem item = p.items[i];
    while (at >= item.base + item.tiles) item = p.items[++i];
    const Rows& rows = p.args.rows;
    const LatentCache& cache = p.args.cache;
    const int t0 = (at - item.base) * kLatentTile;
    const int page = __ldg(rows.pages + item.seq * rows.pages_stride + t0 / cache.page_size);
    sources.from[lane] = cache.data + page * cache.page_bytes + t0 % cache.page_size * kRowBytes;
    sources.is_new[lane] = t0 + kLatentTile > item.stored;
    if (lane == kLot - 1) sources.item = i;
  }
  __syncwarp();
}

__device__ __forceinline__ void begin_sources(const LatentPlanArgs& p, RowSources& sources) {
  if (threadIdx.x % 32 == 0) {
    const int width = p.head->width, group = static_cast<int>(blockIdx.x) / width;
    LatentShare share = {};
    if (group < p.blocks / width) share = p.shares[group];
    sources.begin = share.begin, sources.end = share.end, sources.item = share.item;
  }
  __syncwarp();
  look_up_rows(p, sources, 0);
}

// Copies a half of a tile, run by one thread.
template <class Tiles>
__device__ __forceinline__ void copy_half(RowsShared<Tiles>& shared, int half, int stage,
                                          const std::byte* from) {
  const uint32_t full = shared_address(&shared.full[stage]);
  barrier_expect(full, kHalfBytes);
  copy_bytes(shared_address(shared.rows[stage]) + half * kHalfBytes, from + half * kHalfBytes,
             kHalfBytes, full, Keep::kFirstToGo);
}

// Fills this half of all stages, run by a whole warp. Tiles that earlier steps stored are copied
// before griddepcontrol.wait.
template <class Tiles>
__device__ __forceinline__ void first_halves(const LatentPlanArgs& p, RowsShared<Tiles>& shared,
                                             int half) {
  RowSources& sources = shared.sources[half];
  begin_sources(p, sources);
  if (elected()) {
    bool waited = false;
    for (int n = 0; n < Tiles::kStages && sources.begin + n < sources.end; ++n) {
      if (!waited && sources.is_new[n]) {
        wait_for_previous();
        waited = true;
      }
      copy_half(shared, half, n, sources.from[n]);
    }
  }
  __syncwarp();
}

// Asks for a half of tile n, in the place of the tile `kStages` before it, of which all have read
// that half, or nearly. Run by a whole warp.
template <class Tiles>
__device__ __forceinline__ void next_half(const LatentPlanArgs& p, RowsShared<Tiles>& shared,
                                          uint32_t n, int stage, uint32_t phase, int half) {
  RowSources& sources = shared.sources[half];
  const uint32_t place = n % uint32_t{kLot};
  if (place == 0) look_up_rows(p, sources, static_cast<int>(n));
  if (elected()) {
    const std::byte* from = sources.from[place];
    barrier_wait(shared_address(&shared.done[stage][half]), phase);
    copy_half(shared, half, stage, from);
  }
  __syncwarp();
}

}  // namespace skiff::cuda::latent
