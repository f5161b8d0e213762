// ops/cuda/attention/decode_copy.cuh -- the split-KV decode kernel's TMA producer.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/attention/decode_shape.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::decode {

// Prefetches the queries of a run into the L1, so that the run does not begin with a wait.
template <class S>
__device__ void prefetch_queries(const DecodeArgs& d, const Run& run) {
  const int group = d.args.group, lines = S::kDim * 2 / 128;
  const auto* q = static_cast<const __nv_bfloat16*>(d.args.q);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < run.share.rows * group * lines; i += 32) {
    const int packed = i / lines;
    const auto* at = q + (run.share.row + packed / group) * d.args.q_stride +
                     (run.head * group + packed % group) * S::kDim + i % lines * 64;
    uint32_t unused;
    asm volatile("ld.global.ca.b32 %0, [%1];" : "=r"(unused) : "l"(at));
  }
}

// Returns whether positions [0, end) of a share's sequence were stored by earlier steps. Without
// pieces this step adds at most as many positions as all shares of the sequence have rows.
template <bool kPieces>
__device__ bool is_old(const DecodeShare& s, int end) {
  return end <= (kPieces ? s.stored : s.kv_len - kPackedRows * kMaxShares);
}

// Columns of a panel in the tensor map: of bf16, or of bytes.
template <class S>
constexpr int kPanelColumns = S::kQuantized ? S::kPanelBytes : S::kPanelBytes / 2;

// Copies the scales of some positions of a page, from `in_page` on; they are `row` and the next of
// the tile.
template <class S>
__device__ void copy_scales(const CacheArgs& c, int head, int page, int in_page, int row, int bytes,
                            Scales<S>& to, uint32_t barrier) {
  const int64_t at = (static_cast<int64_t>(head) * c.page_size + in_page) * S::kScales;
  copy_bytes(shared_address(to.k + row * S::kScales), c.k_scale + page * c.k_scale_page + at, bytes,
             barrier, Keep::kNormal);
  copy_bytes(shared_address(to.v + row * S::kScales), c.v_scale + page * c.v_scale_page + at, bytes,
             barrier, Keep::kNormal);
}

// The TMA producer, run by a whole warp without divergence. Tiles that earlier steps stored are
// loaded before griddepcontrol.wait, tiles that this step may write after it.
template <class S, bool kPieces>
__device__ void copy_tiles(const DecodeArgs& d, TileWalk<kPieces> walk, Run run,
                           const CUtensorMap& k, const CUtensorMap& v, Shared<S>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_size = d.args.cache.page_size, page_shift = d.args.page_shift;
  const int box = min(page_size, kTile), box_shift = min(page_shift, 6), boxes = kTile / box;
  const int box_bytes = box * S::kPanelBytes, scale_bytes = box * S::kScales * 2;
  const bool scaled = S::kQuantized && d.args.cache.scales > 0;
  int stage = 0, number = 0;
  uint32_t phase = 1;
  bool waited = false;
  do {
    const int32_t* pages = d.args.rows.pages + run.share.seq * d.args.rows.pages_stride;
    const int begin = (run.share.first_tile + run.first) * kTile;
    const int end = min(begin + run.tiles * kTile, run.share.kv_len);
    const int seen = max(begin, first_seen(run.share, d.args.window));
    // Lane i looks up the page of the i-th box in a batch of 32; the next batch is prefetched.
    const auto look_up = [&](int batch) {
      const int t = begin + (batch * 32 + lane) * box;
      return t < end && t + box > seen ? pages[t >> page_shift] : 0;
    };
    int page = look_up(0), next_page = look_up(1);
    if (waited) prefetch_queries<S>(d, run);
    for (int tile = 0; tile < run.tiles; ++tile) {
      if (!waited && !is_old<kPieces>(run.share, begin + (tile + 1) * kTile)) {
        wait_for_previous();
        waited = true;
      }
      const int first_box = tile * boxes;
      if (tile > 0 && first_box % 32 == 0) {
        page = next_page;
        next_page = look_up(first_box / 32 + 1);
      }
      const int t0 = begin + tile * kTile;
      const int skip = max(0, (seen - t0) >> box_shift);
      const int stop = min(boxes, (end - t0 + box - 1) >> box_shift);
      const uint32_t full = shared_address(&shared.full[stage]);
      const uint32_t to_k = shared_address(shared.k[stage]), to_v = shared_address(shared.v[stage]);
      barrier_wait(shared_address(&shared.empty[stage]), phase);
      if (elected()) {
        if (tile == 0) shared.runs[number % S::kRuns] = run;
        const int each = box_bytes * S::kPanels + (scaled ? scale_bytes : 0);
        barrier_expect(full, static_cast<uint32_t>((stop - skip) * each * 2));
      }
      __syncwarp();
      for (int b = skip; b < stop; ++b) {
        const int from = __shfl_sync(kAllLanes, page, (first_box + b) % 32);
        const int in_page = (t0 + b * box) & (page_size - 1);
        if (elected()) {
#pragma unroll
          for (int c = 0; c < S::kPanels; ++c) {
            const int at = c * kTile * S::kPanelBytes + b * box_bytes;
            copy_box(to_k + at, &k, full, c * kPanelColumns<S>, run.head, in_page, from);
          }
#pragma unroll
          for (int c = 0; c < S::kPanels; ++c) {
            const int at = c * kTile * S::kPanelBytes + b * box_bytes;
            copy_box(to_v + at, &v, full, c * kPanelColumns<S>, run.head, in_page, from);
          }
          if constexpr (S::kQuantized) {
            if (scaled)
              copy_scales(d.args.cache, run.head, from, in_page, b * box, scale_bytes,
                          shared.scales.stage[stage], full);
          }
        }
        __syncwarp();
      }
      if (++stage == S::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    ++number;
  } while (walk.next(run));
}

}  // namespace skiff::cuda::decode
