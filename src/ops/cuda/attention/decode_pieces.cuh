// ops/cuda/attention/decode_pieces.cuh -- the split-KV decode kernel's reductions where a plan has
// pieces (plan.h): the results of a head's pieces are folded one after the other, by the block that
// has them all or by the block that finishes last. Both fold by the same instructions, so that it
// does not matter which.
#pragma once
#include <cmath>

#include "ops/cuda/attention/decode_combine.cuh"
#include "ops/cuda/attention/key_tiles.cuh"

namespace skiff::cuda::decode {

// Folds the results of a head that several blocks shared. A warp takes a row and each lane
// neighbouring columns.
template <class S>
__device__ void fold_parts(const DecodeArgs& d, const Run& run, const Part<S>* parts, int n) {
  constexpr int kColumns = S::kDim / 32, kAtOnce = S::kDim == 256 ? 4 : 8;
  using Columns = Pack<float, kColumns>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int row = warp; row < run.share.rows * d.args.group; row += S::kWarps) {
    float top = __ldcg(&parts->top[row]), sum = __ldcg(&parts->sum[row]);
    Columns value = load_through<kColumns>(&parts->o[row][lane * kColumns]);
    for (int first = 1; first < n; first += kAtOnce) {
      float next_top[kAtOnce], next_sum[kAtOnce];
      Columns next[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= n) continue;
        const Part<S>* part = parts + first + i;
        next_top[i] = __ldcg(&part->top[row]);
        next_sum[i] = __ldcg(&part->sum[row]);
        next[i] = load_through<kColumns>(&part->o[row][lane * kColumns]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= n) continue;
        const FoldScale scale(top, next_top[i]);
        top = scale.top;
        sum = scale.fold(sum, next_sum[i]);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) value.at[c] = scale.fold(value.at[c], next[i].at[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) value.at[c] *= inverse(sum);
    write_out(d, run, row, S::kDim, lane * kColumns, value);
  }
}

// Counts this run's pieces of a head; true in the block whose pieces are the last. `arrived_last`
// is in shared memory.
template <class S>
__device__ bool arrives_last(const DecodeArgs& d, const Run& run, int& arrived_last,
                             int first_piece, int pieces) {
  const bool one = threadIdx.x == 0;
  __threadfence();
  named_sync(kComputeBarrier, S::kComputing);
  if (one) {
    arrived_last = atomicAdd(d.arrived + first_piece, run.units) == pieces - run.units;
    if (arrived_last) d.arrived[first_piece] = 0;
    __threadfence();
  }
  named_sync(kComputeBarrier, S::kComputing);
  return arrived_last;
}

// Ends piece `i` of a run. Where the block has all pieces of the head, its two parts hold the fold
// so far and the next one in turn; else each piece has a part of its own.
template <class S>
__device__ void end_piece(const DecodeArgs& d, const Run& run, int i, Softmax<S>& s,
                          Shared<S>& shared) {
  const int pieces = units(run.share, d.piece);
  const bool whole = run.units == pieces, last = i + 1 == run.units;
  auto* own = reinterpret_cast<Part<S>*>(d.parts) + 2 * blockIdx.x;
  auto* all = reinterpret_cast<Part<S>*>(d.parts) + 2 * d.blocks;
  Part<S>* mine = whole ? own + i % 2 : all + run.unit + i;
  const Part<S>* before = own + (i + 1) % 2;
  merge_quarters(run, d.args.group, s, shared,
                 [&](int row, int column, Merged value, float top, float sum) {
                   if (whole && i > 0) {
                     const FoldScale scale(before->top[row], top);
                     const auto old = *reinterpret_cast<const Merged*>(&before->o[row][column]);
                     top = scale.top;
                     sum = scale.fold(before->sum[row], sum);
#pragma unroll
                     for (int c = 0; c < kMerged; ++c)
                       value.at[c] = scale.fold(old.at[c], value.at[c]);
                   }
                   if (!whole || !last) return store_part(mine, row, column, value, top, sum);
#pragma unroll
                   for (float& x : value.at) x *= inverse(sum);
                   write_out(d, run, row, S::kDim, column, value);
                 });
  if (whole || !last) return;
  const int first_piece = run.share.base + run.head * pieces;
  if (arrives_last<S>(d, run, shared.arrived_last, first_piece, pieces))
    fold_parts(d, run, all + first_piece, pieces);
}

}  // namespace skiff::cuda::decode
