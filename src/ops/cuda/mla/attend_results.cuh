// ops/cuda/mla/attend_results.cuh -- the results of runs: written where a run is a whole item, else
// stored as a part.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_shape.cuh"

namespace skiff::cuda::latent {

__device__ __forceinline__ __nv_bfloat16* out_row(const LatentPlanArgs& p, const Run& run, int part,
                                                  int half, int row) {
  const int64_t vector = run.item.first + part * kLatentRows + row;
  return static_cast<__nv_bfloat16*>(p.args.out) + vector * p.args.out_stride + half * kHalf;
}

__device__ __forceinline__ int rows_of(const Run& run, int part) {
  return min(kLatentRows, run.item.count - part * kLatentRows);
}

// Writes zeros to the padding rows of `out`.
__device__ inline void clear_padding(const LatentPlanArgs& p) {
  auto* out = static_cast<__nv_bfloat16*>(p.args.out);
  const int end = p.args.rows.num_tokens * p.args.heads;
  for (int vector = p.head->vectors + static_cast<int>(blockIdx.x); vector < end;
       vector += static_cast<int>(gridDim.x)) {
    for (int c = static_cast<int>(threadIdx.x) % kGroupThreads * 8; c < kRank;
         c += kGroupThreads * 8)
      *reinterpret_cast<uint4*>(out + vector * p.args.out_stride + c) = uint4{};
  }
}

// Writes the sums of a run to `out`, or to this block's part.
template <class Tiles>
__device__ inline void end_run(const LatentPlanArgs& p, const Run& run, int half, int turn,
                               Shared<Tiles>& shared, const float (&o)[kHalf / 2]) {
  const int part = part_of_item(p), rows = rows_of(run, part);
  const int thread = own_thread(), lane = thread % 32;
  const bool whole = run.tiles == run.item.tiles;
  Part* mine = part_of(p, static_cast<int>(blockIdx.x), run.tile == 0);
#pragma unroll
  for (int second = 0; second < 2; ++second) {
    const int row = thread / 32 * 16 + lane / 4 + 8 * second;
    if (row >= rows) continue;
    if (whole) {
      const float scale = 1 / shared.sum[turn][row];
      __nv_bfloat16* out = out_row(p, run, part, half, row) + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHalf / 8; ++n)
        *reinterpret_cast<uint32_t*>(out + n * 8) =
            pack_bf16(o[n * 4 + 2 * second] * scale, o[n * 4 + 2 * second + 1] * scale);
    } else {
      float* out = mine->o[row] + half * kHalf + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHalf / 8; ++n)
        *reinterpret_cast<float2*>(out + n * 8) =
            make_float2(o[n * 4 + 2 * second], o[n * 4 + 2 * second + 1]);
      if (half == 0 && lane % 4 == 0) {
        mine->top[row] = shared.top[turn][row];
        mine->sum[row] = shared.sum[turn][row];
      }
    }
  }
}

}  // namespace skiff::cuda::latent
