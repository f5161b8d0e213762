// ops/cuda/attention/invariant_fold.cuh -- how the kernel that decodes in pieces ends a piece and a
// run: it folds the pieces of a head in registers where the block has all of them, and else leaves
// them to the block that finishes last.
#pragma once
#include "ops/cuda/attention/decode_pieces.cuh"
#include "ops/cuda/attention/invariant_compute.cuh"

namespace skiff::cuda::decode {

// Calls f(half, packed row, column, fragment) for every two neighbouring elements of this lane.
template <class S, class F>
__device__ void for_each_pair(const DecodeArgs& d, const Run& run, F f) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + half * kHalf;
    if (row >= run.share.rows * d.args.group) continue;
#pragma unroll
    for (int n = 0; n < S::kColumns / 8; ++n)
      f(half, row, warp * S::kColumns + n * 8 + lane % 4 * 2, n);
  }
}

// Ends piece `i` of a run: folds it where the block has all pieces of the head, else stores it.
template <class S>
__device__ void end_piece(const DecodeArgs& d, const Run& run, int i, Rows16<S>& rows,
                          InvariantShared<S>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float x = sum_of_lanes(rows.softmax.sum[half][0]);
    if (lane % 4 == 0) reinterpret_cast<float*>(&shared.sum[lane / 4 + half * kHalf])[warp] = x;
  }
  named_sync(kComputeBarrier, S::kComputing);
  Total next[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 x = shared.sum[lane / 4 + half * kHalf];
    next[half] = {rows.softmax.top[half], sum_of_quarters(x.x, x.y, x.z, x.w)};
  }
  if (run.units == units(run.share, d.piece)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const FoldScale scale(rows.total[half].top, next[half].top);
      rows.total[half] = scale.fold(rows.total[half], next[half]);
#pragma unroll
      for (int n = 0; n < S::kColumns / 8; ++n)
#pragma unroll
        for (int k = 2 * half; k < 2 * half + 2; ++k)
          rows.folded[n][k] = scale.fold(rows.folded[n][k], rows.o[n][k]);
    }
  } else {
    Part<S>* part = reinterpret_cast<Part<S>*>(d.parts) + 2 * d.blocks + run.unit + i;
    for_each_pair<S>(d, run, [&](int half, int row, int column, int n) {
      *reinterpret_cast<float2*>(&part->o[row][column]) =
          make_float2(rows.o[n][2 * half], rows.o[n][2 * half + 1]);
      if (column > 0) return;
      part->top[row] = next[half].top;
      part->sum[row] = next[half].sum;
    });
  }
  rows.softmax.restart();
  rows.clear(rows.o);
}

// Writes the result of a head that the block has all of, or sees to it that the last block does.
template <class S>
__device__ void end_run(const DecodeArgs& d, const Run& run, Rows16<S>& rows,
                        InvariantShared<S>& shared) {
  const int pieces = units(run.share, d.piece);
  if (run.units == pieces) {
    const float by[2] = {inverse(rows.total[0].sum), inverse(rows.total[1].sum)};
    for_each_pair<S>(d, run, [&](int half, int row, int column, int n) {
      const float(&x)[4] = rows.folded[n];
      write_out(d, run, row, S::kDim, column,
                Pack<float, 2>{x[2 * half] * by[half], x[2 * half + 1] * by[half]});
    });
    return;
  }
  const int first = run.share.base + run.head * pieces;
  if (arrives_last<S>(d, run, shared.arrived_last, first, pieces))
    fold_parts(d, run, reinterpret_cast<Part<S>*>(d.parts) + 2 * d.blocks + first, pieces);
}

}  // namespace skiff::cuda::decode
