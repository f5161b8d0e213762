// ops/cuda/attention/invariant_copy.cuh -- the TMA producer of the kernel that decodes in pieces.
#pragma once
#include "ops/cuda/attention/decode_copy.cuh"
#include "ops/cuda/attention/invariant_shape.cuh"

namespace skiff::cuda::decode {

// What the producer knows of a run: positions [begin, end) of it are seen by some row.
template <class S>
struct RunCopy {
  const int32_t* pages;
  int begin, end;

  __device__ RunCopy(const DecodeArgs& d, const Run& run) {
    const int first = (run.share.first_tile + run.first) * kTile;
    pages = d.args.rows.pages + run.share.seq * d.args.rows.pages_stride;
    begin = max(first, first_seen(run.share, d.args.window));
    end = min(first + run.tiles * kTile, run.share.kv_len);
  }
  // Lane i looks up the page of the i-th box of a tile.
  __device__ int page(const DecodeArgs& d, int tile) const {
    const int box = min(d.args.cache.page_size, kTile);
    const int in_tile = static_cast<int>(threadIdx.x) % 32 * box;
    const int t = tile * kKeys<S::kDim> + in_tile;
    return in_tile < kKeys<S::kDim> && t < end && t + box > begin ? pages[t >> d.args.page_shift]
                                                                  : 0;
  }
};

// Fills a slot with `half` of a tile: the boxes of it that some row sees. `announced`, if any, is
// where the run goes before the slot is full.
template <class S>
__device__ void copy_half(const DecodeArgs& d, const Run& run, const RunCopy<S>& copy,
                          const CUtensorMap& map, int tile, int half, int page, uint32_t to,
                          uint32_t full, Run* announced) {
  const int page_size = d.args.cache.page_size;
  const int box = min(page_size, kTile), shift = min(d.args.page_shift, 6), boxes = kTile >> shift;
  const int t0 = tile * kKeys<S::kDim> + half * kTile;
  const int skip = max(0, (copy.begin - t0) >> shift);
  const int stop = min(boxes, (copy.end - t0 + box - 1) >> shift);
  if (elected()) {
    if (announced) *announced = run;
    barrier_expect(full, static_cast<uint32_t>((stop - skip) * box * S::kDim * 2));
  }
  __syncwarp();
  for (int b = skip; b < stop; ++b) {
    const int from = __shfl_sync(kAllLanes, page, half * boxes + b);
    const int in_page = (t0 + b * box) & (page_size - 1);
    if (elected()) {
#pragma unroll
      for (int c = 0; c < S::kDim / 64; ++c) {
        copy_box(to + (c * kTile + b * box) * 128, &map, full, c * 64, run.head, in_page, from);
      }
    }
    __syncwarp();
  }
}

// The TMA producer, run by a whole warp without divergence. Tiles that earlier steps stored are
// loaded before griddepcontrol.wait, tiles that this step may write after it.
template <class S>
__device__ void copy_runs(const DecodeArgs& d, TileWalk<true> walk, Run run, const CUtensorMap& k,
                          const CUtensorMap& v, InvariantShared<S>& shared) {
  SlotRing<S::kSlots> ring;
  bool waited = false;
  int number = 0;
  do {
    const RunCopy<S> copy(d, run);
    int index = KeyTile<S>::first_of(run);
    int page = copy.page(d, index), next = copy.page(d, index + 1);
    if (waited) prefetch_queries<S>(d, run);
    Run* announced = &shared.runs[number++ % S::kRuns];
    for (KeyTile<S> tile(run, index); tile.any(); tile = KeyTile<S>(run, ++index)) {
      const int after = copy.page(d, index + 2);
      if (!waited && !is_old<true>(run.share, tile.position() + tile.high * kTile)) {
        wait_for_previous();
        waited = true;
      }
      for (int i = 0; i < 2 * tile.halves(); ++i) {
        const bool keys = i < tile.halves();
        const int half = tile.low + (keys ? i : i - tile.halves());
        barrier_wait(shared_address(&shared.empty[ring.slot]), ring.phase ^ 1);
        copy_half(d, run, copy, keys ? k : v, index, half, page,
                  shared_address(shared.slot[ring.slot]), shared_address(&shared.full[ring.slot]),
                  announced);
        announced = nullptr;
        ring = ring.after(1);
      }
      page = next;
      next = after;
    }
  } while (walk.next(run));
}

}  // namespace skiff::cuda::decode
