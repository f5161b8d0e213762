// ops/cuda/attention/decode_combine.cuh -- the split-KV decode kernel's reductions: over the warps
// of a block, and over the blocks that share a head.
#pragma once
#include <cuda_bf16.h>

#include <cmath>

#include "ops/cuda/attention/decode_compute.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::decode {

// One block's partial result of a head that several blocks share.
template <class S>
struct Part {
  float o[kPackedRows][S::kDim], top[kPackedRows], sum[kPackedRows];
};

template <int n>
__device__ void write_out(const DecodeArgs& d, const Run& run, int packed, int dim, int column,
                          const Pack<float, n>& value) {
  const int64_t at = (run.share.row + packed / d.args.group) * d.args.out_stride +
                     (run.head * d.args.group + packed % d.args.group) * dim + column;
  Pack<__nv_bfloat16, n> rounded;
#pragma unroll
  for (int i = 0; i < n; ++i) rounded.at[i] = __float2bfloat16_rn(value.at[i]);
  *reinterpret_cast<Pack<__nv_bfloat16, n>*>(static_cast<__nv_bfloat16*>(d.args.out) + at) =
      rounded;
}

// Loads through the L2: other blocks' writes do not reach the L1.
template <int n>
__device__ Pack<float, n> load_through(const float* from) {
  Pack<float, n> to;
  if constexpr (n == 2) {
    const float2 x = __ldcg(reinterpret_cast<const float2*>(from));
    to = {x.x, x.y};
  } else {
#pragma unroll
    for (int i = 0; i < n; i += 4) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(from + i));
      to.at[i] = x.x, to.at[i + 1] = x.y, to.at[i + 2] = x.z, to.at[i + 3] = x.w;
    }
  }
  return to;
}

// The block that arrives last at a head reduces its parts, in the order of their positions.
template <class S>
__device__ void combine(const DecodeArgs& d, const Run& run, Shared<S>& shared, Part<S>* parts,
                        int first_block, int blocks) {
  const int tid = static_cast<int>(threadIdx.x);
  __threadfence();
  named_sync(kComputeBarrier, S::kComputing);
  if (tid == 0) {
    shared.arrived_last = atomicAdd(d.arrived + first_block, 1) == blocks - 1;
    if (shared.arrived_last) d.arrived[first_block] = 0;
    __threadfence();
  }
  named_sync(kComputeBarrier, S::kComputing);
  if (!shared.arrived_last) return;
  const auto part = [&](int i) { return parts + 2 * (first_block + i) + (i == 0 ? 1 : 0); };
  // A warp takes a row and each lane kColumns neighbouring columns; 32 parts at a time.
  constexpr int kColumns = S::kDim / 32;
  using Columns = Pack<float, kColumns>;
  const int lane = tid % 32;
  for (int row = tid / 32; row < run.share.rows * d.args.group; row += S::kWarps) {
    float top = -INFINITY, sum = 0;
    Columns value = {};
    for (int base = 0; base < blocks; base += 32) {
      const bool real = base + lane < blocks;
      const float my_top = real ? __ldcg(&part(base + lane)->top[row]) : -INFINITY;
      const float my_sum = real ? __ldcg(&part(base + lane)->sum[row]) : 0;
      const float before = top;
      top = fmaxf(top, my_top);
      top = warp_max(top);
      const float floor = top == -INFINITY ? 0.0f : top;
      const float keep = exp2_fast(before - floor), my_keep = exp2_fast(my_top - floor);
      sum = sum * keep + my_sum * my_keep;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) value.at[c] *= keep;
      const int count = min(32, blocks - base);
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        const float worth = __shfl_sync(kAllLanes, my_keep, i);
        const Columns more = load_through<kColumns>(&part(base + i)->o[row][lane * kColumns]);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) value.at[c] += more.at[c] * worth;
      }
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) value.at[c] /= sum;
    write_out(d, run, row, S::kDim, lane * kColumns, value);
  }
}

// Neighbouring columns of a row of results that one thread merges.
constexpr int kMerged = 4;
using Merged = Pack<float, kMerged>;

// The place of a column in a row of results in shared memory, where what is written or read at the
// same time lies in different banks. A fragment over a quantized cache has every eighth column: it
// is stored as it lies in registers, and neighbouring columns are read apart.
template <class S>
__device__ int place_of(int row, int column) {
  if constexpr (S::kQuantized) {
    constexpr int kFragments = S::kColumns / 8;
    const int in_warp = column % S::kColumns, n = in_warp % kFragments;
    column += (n ^ n / 4) * 8 + in_warp / kFragments - in_warp;
  }
  return column ^ row * 8;
}

template <class S>
__device__ Merged load_merged(const float* results, int row, int column) {
  Merged to;
  if constexpr (S::kQuantized) {
#pragma unroll
    for (int c = 0; c < kMerged; ++c) to.at[c] = results[place_of<S>(row, column + c)];
  } else {
    to = *reinterpret_cast<const Merged*>(results + place_of<S>(row, column));
  }
  return to;
}

// Merges the four quarters' softmaxes: f(row, column, values, top, sum) for all columns, a few
// neighbouring ones at a time.
template <class S, class F>
__device__ void merge_quarters(const Run& run, int group, Softmax<S>& s, Shared<S>& shared, F f) {
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32;
  const WarpPart my = part_of_warp<S>();
  const int rows = run.share.rows * group;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    s.sum[half] += __shfl_xor_sync(kAllLanes, s.sum[half], 1);
    s.sum[half] += __shfl_xor_sync(kAllLanes, s.sum[half], 2);
    if (lane % 4 == 0) {
      shared.top[my.quarter][lane / 4 + half * kHalf] = s.top[half];
      shared.sum[my.quarter][lane / 4 + half * kHalf] = s.sum[half];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * kHalf >= rows) break;
    const float unit = s.units.of_values(half);
    const int r = lane / 4;
#pragma unroll
    for (int n = 0; n < S::kColumns / 8; ++n) {
      if (half * kHalf + r >= rows) continue;
      const int place = place_of<S>(r, my.column + column_of<S>(n, lane % 4 * 2));
      *reinterpret_cast<float2*>(&shared.o[my.quarter][r][place]) =
          make_float2(s.o[n][2 * half] * unit, s.o[n][2 * half + 1] * unit);
    }
    named_sync(kComputeBarrier, S::kComputing);
    for (int i = tid * kMerged; i < kHalf * S::kDim; i += S::kComputing * kMerged) {
      const int r = i / S::kDim, row = half * kHalf + r, column = i % S::kDim;
      if (row >= rows) break;
      float top = shared.top[0][row], sum = 0;
      for (int w = 1; w < kQuarters; ++w) top = fmaxf(top, shared.top[w][row]);
      const float base = top == -INFINITY ? 0.0f : top;
      Merged value = {};
#pragma unroll
      for (int w = 0; w < kQuarters; ++w) {
        const float keep = exp2_fast(shared.top[w][row] - base);
        sum += shared.sum[w][row] * keep;
        const Merged more = load_merged<S>(shared.o[w][r], r, column);
#pragma unroll
        for (int c = 0; c < kMerged; ++c) value.at[c] += more.at[c] * keep;
      }
      f(row, column, value, top, sum);
    }
    named_sync(kComputeBarrier, S::kComputing);
  }
}

template <class S>
__device__ void store_part(Part<S>* part, int row, int column, const Merged& value, float top,
                           float sum) {
  *reinterpret_cast<Merged*>(&part->o[row][column]) = value;
  if (column > 0) return;
  part->top[row] = top;
  part->sum[row] = sum;
}

// Writes the result of a run to `out`, or to this block's part.
template <class S>
__device__ void end_run(const DecodeArgs& d, const Run& run, Softmax<S>& s, Shared<S>& shared) {
  const int per_block = d.plan.head->per_block;
  auto* parts = reinterpret_cast<Part<S>*>(d.parts);
  const bool whole = run.tiles == run.share.tiles;
  Part<S>* mine = parts + 2 * blockIdx.x + (run.first == 0 ? 1 : 0);
  merge_quarters(run, d.args.group, s, shared,
                 [&](int row, int column, Merged value, float top, float sum) {
                   if (!whole) return store_part(mine, row, column, value, top, sum);
#pragma unroll
                   for (float& x : value.at) x /= sum;
                   write_out(d, run, row, S::kDim, column, value);
                 });
  if (whole) return;
  const int begin = run.share.base + run.head * run.share.tiles;
  const int first_block = begin / per_block;
  combine(d, run, shared, parts, first_block,
          (begin + run.share.tiles - 1) / per_block - first_block + 1);
}

}  // namespace skiff::cuda::decode
