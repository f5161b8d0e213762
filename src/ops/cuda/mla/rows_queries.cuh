// ops/cuda/mla/rows_queries.cuh -- the queries of latent attention over 8-bit rows. They become f16
// in a unit of their own, a power of two by which a vector's largest element of the latent lies in
// [2^14, 2^15): they keep all bits but of elements below 2^-28 of that, whose error is below 2^-39
// of it. Rotated parts stay bf16, in the same unit.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/float8_half.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/rows_known.cuh"
#include "ops/cuda/mla/rows_shape.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

// Returns the factor that brings a vector into f16, from 16 of its elements in each lane.
__device__ __forceinline__ float query_factor(const uint4 (&x)[2]) {
  const uint32_t words[] = {x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w};
  uint32_t most = 0;
#pragma unroll
  for (const uint32_t w : words) most = max(most, max(w & 0x7fff, w >> 16 & 0x7fff));
  most = __reduce_max_sync(kAllLanes, most);
  // 2^14 over the power of two below it; at most 2^60, so that rotated parts stay finite.
  const int exponent = min(127 + 14 + 127 - static_cast<int>(most >> 7), 127 + 60);
  return __uint_as_float(static_cast<uint32_t>(exponent) << 23);
}

__device__ __forceinline__ uint32_t to_half(uint32_t pair, float factor) {
  return pack_half(low_bf16(pair) * factor, high_bf16(pair) * factor);
}
__device__ __forceinline__ uint32_t scaled(uint32_t pair, float factor) {
  return pack_bf16(low_bf16(pair) * factor, high_bf16(pair) * factor);
}

// A thread's word of 16 bytes of a row has columns 4 * (lane % 4) and on: the first two are its
// elements of the first half of a wgmma's columns, the others of the second. So the columns of
// queries go 0, 1, 4, 5, 8, ... and 2, 3, 6, 7, 10, ...
__device__ __forceinline__ void split_columns(const uint4 (&x)[2], float factor, uint4 (&y)[2]) {
  y[0] = {to_half(x[0].x, factor), to_half(x[0].z, factor), to_half(x[1].x, factor),
          to_half(x[1].z, factor)};
  y[1] = {to_half(x[0].y, factor), to_half(x[0].w, factor), to_half(x[1].y, factor),
          to_half(x[1].w, factor)};
}

// Loads a run's queries, by both warpgroups: zeros where there is no vector. A warp takes a vector
// at a time, a lane 16 of its columns.
template <class Tiles>
__device__ __forceinline__ void load_queries(const LatentPlanArgs& p, const Run& run, int which,
                                             int turn, RowsShared<Tiles>& shared) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, panel = lane / 4, pair = lane % 4;
  const int warp = which * kWarpsOfGroup + thread / 32, part = part_of_item(p);
  named_sync(kBothScoresBarrier, 2 * kGroupThreads);  // no wgmma reads queries any more
  if (which == 0) forget(shared, turn);
#pragma unroll(2 * Tiles::kLoads)
  for (int i = 0; i < Tiles::kVectors / 8; ++i) {
    const int row = i * 8 + warp, vector = vector_of(run, part, row);
    uint4 x[2] = {}, y[2], rope = {};
    if (vector >= 0) {
      x[0] = __ldcg(query_at(p, vector, panel, 2 * pair));
      x[1] = __ldcg(query_at(p, vector, panel, 2 * pair + 1));
      if (lane < 8) rope = __ldcg(query_at(p, vector, kPanels - 1, lane));
    }
    const float factor = query_factor(x);
    split_columns(x, factor, y);
    *reinterpret_cast<uint4*>(shared.q[panel] + swizzled(row, 2 * pair)) = y[0];
    *reinterpret_cast<uint4*>(shared.q[panel] + swizzled(row, 2 * pair + 1)) = y[1];
    if (lane < 8)
      *reinterpret_cast<uint4*>(shared.q[kPanels - 1] + swizzled(row, lane)) = {
          scaled(rope.x, factor), scaled(rope.y, factor), scaled(rope.z, factor),
          scaled(rope.w, factor)};
    if (lane == 0) shared.unit[row] = p.scale_log2 * inverse_power(factor);
  }
  fence_async();
  named_sync(kBothScoresBarrier, 2 * kGroupThreads);
}

}  // namespace skiff::cuda::latent
