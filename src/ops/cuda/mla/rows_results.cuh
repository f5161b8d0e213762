// ops/cuda/mla/rows_results.cuh -- the results of runs over 8-bit rows: written where a run is a
// whole item, else stored as a part (attend_results.cuh).
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_results.cuh"
#include "ops/cuda/mla/rows_shape.cuh"

namespace skiff::cuda::latent {

// The sums of a thread: for each 64 columns, of columns 2 * (lane / 4) and the next of its warp's
// 16 and vectors 8 * j + 2 * (lane % 4) + i: sums[block][4 * j + 2 * column + i].
template <class Tiles>
using ColumnSums = float[kHalfPanels][Tiles::kVectors / 2];

// Writes the sums of a run to `out`, or to this block's part.
template <class Tiles>
__device__ __forceinline__ void end_rows_run(const LatentPlanArgs& p, const Run& run, int which,
                                             int turn, int place, const RowsShared<Tiles>& shared,
                                             const ColumnSums<Tiles>& o) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  const bool whole = run.tiles == run.item.tiles;
  const int column = which * kHalf + warp * 16 + lane / 4 * 2;
  const int part = part_of_item(p), count = rows_of(run, part);
  const float* largest = shared.largest[turn] + which * kGroupsOfHalf;
  Part* mine = part_of(p, static_cast<int>(blockIdx.x), run.tile == 0);
#pragma unroll
  for (int j = 0; j < Tiles::kVectors / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int vector = j * 8 + lane % 4 * 2 + i;
      if (vector >= count) continue;
      const float sum = shared.sum[place][0][vector] + shared.sum[place][1][vector];
      const float scale = whole ? 1 / sum : 1.0f;
      __nv_bfloat16* out = out_row(p, run, part, 0, vector) + column;
#pragma unroll
      for (int b = 0; b < kHalfPanels; ++b) {
        const float unit = scale * largest[b / 2];
        const float x = o[b][4 * j + i] * unit, y = o[b][4 * j + 2 + i] * unit;
        if (whole)
          *reinterpret_cast<uint32_t*>(out + b * 64) = pack_bf16(x, y);
        else
          *reinterpret_cast<float2*>(&mine->o[vector][column + b * 64]) = make_float2(x, y);
      }
      if (!whole && which == 0 && warp == 0 && lane < 4) {
        mine->top[vector] = shared.top[turn][vector];
        mine->sum[vector] = sum;
      }
    }
  }
}

}  // namespace skiff::cuda::latent
