// ops/cuda/one_row/filler.cuh -- the producer warp of a segment, which loads weights.
#pragma once
#include "ops/cuda/one_row/block.cuh"

namespace skiff::cuda::segment {

__device__ inline void fetch_to_cache(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
               "r"(bytes)
               : "memory");
}

// Run by one warp. It loads all weights of this block, step by step; a lane copies a row of a
// group.
class Filler {
 public:
  __device__ Filler(char* memory, Shared& shared)
      : s_(shared.segment()),
        ring_(memory, s_.ring_bytes, s_.on_way_bytes, &shared.ring, shared.item_bytes),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    for (int i = 0; i < s_.steps; ++i) {
      const SegmentProduct& p = s_.step[i].product;
      if (p.weight) fill(p);
    }
    fetch_soon();
  }

 private:
  __device__ void fill(const SegmentProduct& p) {
    const int units = p.units, item_units = p.item_units;
    const int64_t in = int64_t{units} * kUnit;
    const bool gated = p.gated;
    // In a gated GEMV lanes 0 and 1 copy gate rows, lanes 2 and 3 the matching up rows.
    const int row = gated ? lane_ % 2 : lane_;
    const __nv_bfloat16* mine = p.weight + (row + (gated && lane_ >= 2 ? p.features : 0)) * in;
    for (Groups g(p); g.next();) {
      const __nv_bfloat16* from = mine + g.first() * in;
      const bool copies = lane_ < kGroup && row < g.count();
      const int rows = g.count() * (gated ? 2 : 1);
      for (int u = 0; u < units; u += item_units) {
        const int row_bytes = min(item_units, units - u) * kUnit * 2;
        const uint32_t to = ring_.open(kGroup * row_bytes, rows * row_bytes);
        if (copies) ring_.copy(to + lane_ * row_bytes, from + u * kUnit, row_bytes);
        ring_.next();
      }
    }
  }
  // Prefetches the weights that the next segment reads first into the L2, so that the memory stays
  // busy during the attention kernel in between.
  __device__ void fetch_soon() {
    if (!s_.soon) return;
    const Span mine = share_of(s_.soon_shares, 0);
    const char* from = reinterpret_cast<const char*>(s_.soon + int64_t{mine.begin} * s_.soon_in);
    const int bytes = min((mine.end - mine.begin) * s_.soon_in * 2, s_.soon_bytes);
    constexpr int kPiece = 4096;
    for (int at = lane_ * kPiece; at < bytes; at += 32 * kPiece)
      fetch_to_cache(from + at, min(kPiece, bytes - at));
  }

  const Segment& s_;
  RingFiller ring_;
  int lane_;
};

}  // namespace skiff::cuda::segment
