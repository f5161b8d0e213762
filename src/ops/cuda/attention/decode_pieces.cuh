// ops/cuda/attention/decode_pieces.cuh -- the split-KV decode kernel's reductions where a plan has
// pieces (plan.h): the results of a head's pieces are folded one after the other, by the block that
// has them all or by the block that finishes last. Both fold by the same instructions, so that it
// does not matter which.
#pragma once
#include <cmath>

#include "ops/cuda/attention/decode_combine.cuh"

namespace skiff::cuda::decode {

// The factors that bring the results before and the next one to their common maximum.
struct FoldScale {
  float top, keep, worth;
  __device__ FoldScale(float before, float next) : top(fmaxf(before, next)) {
    const float base = top == -INFINITY ? 0.0f : top;
    keep = exp2_fast(before - base);
    worth = exp2_fast(next - base);
  }
  // The roundings are spelled out, because the compiler may contract a sum of products either way.
  __device__ float fold(float before, float next) const {
    return __fmaf_rn(before, keep, __fmul_rn(next, worth));
  }
};

// Folds the results of a head that several blocks shared. A warp takes a row and each lane
// neighbouring columns.
template <int kDim>
__device__ void fold_parts(const DecodeArgs& d, const Run& run, const Part<kDim>* parts, int n) {
  constexpr int kColumns = kDim / 32, kAtOnce = kDim == 256 ? 4 : 8;
  using Columns = Pack<float, kColumns>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int row = warp; row < run.share.rows * d.args.group; row += Shape<kDim>::kWarps) {
    float top = __ldcg(&parts->top[row]), sum = __ldcg(&parts->sum[row]);
    Columns value = load_through<kColumns>(&parts->o[row][lane * kColumns]);
    for (int first = 1; first < n; first += kAtOnce) {
      float next_top[kAtOnce], next_sum[kAtOnce];
      Columns next[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= n) continue;
        const Part<kDim>* part = parts + first + i;
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
    for (int c = 0; c < kColumns; ++c) value.at[c] /= sum;
    write_out(d, run, row, kDim, lane * kColumns, value);
  }
}

// Counts this run's pieces of a head; true in the block whose pieces are the last.
template <int kDim>
__device__ bool arrives_last(const DecodeArgs& d, const Run& run, Shared<kDim>& shared,
                             int first_piece, int pieces) {
  const bool one = threadIdx.x == 0;
  __threadfence();
  named_sync(kComputeBarrier, Shape<kDim>::kComputing);
  if (one) {
    shared.arrived_last = atomicAdd(d.arrived + first_piece, run.units) == pieces - run.units;
    if (shared.arrived_last) d.arrived[first_piece] = 0;
    __threadfence();
  }
  named_sync(kComputeBarrier, Shape<kDim>::kComputing);
  return shared.arrived_last;
}

// The element of half a fragment's rows that a thread merges in its `turn`-th turn.
template <int kDim>
struct Element {
  static constexpr int kTurns = kHalf * kDim / Shape<kDim>::kComputing;
  int r, row, column;  // r: within the half
  __device__ Element(int half, int turn) {
    const int i = static_cast<int>(threadIdx.x) + turn * Shape<kDim>::kComputing;
    r = i / kDim;
    row = half * kHalf + r;
    column = i % kDim;
  }
};

// What a warp brings to the merge of a piece.
template <int kDim>
struct Quarter {
  float o[Shape<kDim>::kColumns / 8][4], top[2], sum[2];
  __device__ explicit Quarter(const Softmax<kDim>& s) {
#pragma unroll
    for (int n = 0; n < Shape<kDim>::kColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] = s.o[n][i];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = s.top[half];
      sum[half] = s.sum[half];
    }
  }
};

// Merges the four quarters' softmaxes: f(turn, element, value, top, sum) for every element.
// ahead(half) comes before the threads wait for each other.
template <int kDim, class Ahead, class F>
__device__ void merge_quarters(int rows, Quarter<kDim>& s, Shared<kDim>& shared, Ahead ahead, F f) {
  using Element = Element<kDim>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WarpPart my = part_of_warp<kDim>();
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
      // Columns are swizzled by row, so that the rows of a fragment lie in different banks.
#pragma unroll
    for (int n = 0; n < Shape<kDim>::kColumns / 8; ++n) {
      const int column = (my.column + n * 8 + lane % 4 * 2) ^ (lane / 4 * 8);
      *reinterpret_cast<float2*>(&shared.o[my.quarter][lane / 4][column]) =
          make_float2(s.o[n][2 * half], s.o[n][2 * half + 1]);
    }
    ahead(half);
    named_sync(kComputeBarrier, Shape<kDim>::kComputing);
#pragma unroll
    for (int turn = 0; turn < Element::kTurns; ++turn) {
      const Element e(half, turn);
      if (e.row >= rows) break;
      float top = shared.top[0][e.row], sum = 0, value = 0;
      for (int w = 1; w < kQuarters; ++w) top = fmaxf(top, shared.top[w][e.row]);
      const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
      for (int w = 0; w < kQuarters; ++w) {
        const float keep = exp2_fast(shared.top[w][e.row] - base);
        sum += shared.sum[w][e.row] * keep;
        value += shared.o[w][e.r][e.column ^ (e.r * 8)] * keep;
      }
      f(turn, e, value, top, sum);
    }
    named_sync(kComputeBarrier, Shape<kDim>::kComputing);
  }
}

template <int kDim>
__device__ void store_part(Part<kDim>* part, int row, int column, float value, float top,
                           float sum) {
  part->o[row][column] = value;
  if (column > 0) return;
  part->top[row] = top;
  part->sum[row] = sum;
}

// Ends piece `i` of a run. Where the block has all pieces of the head, its two parts hold the fold
// so far and the next one in turn; else each piece has a part of its own. Not inlined, because the
// main loop would have too few registers.
template <int kDim>
__device__ __noinline__ void end_piece(const DecodeArgs& d, const Run& run, int i, Quarter<kDim> s,
                                       Shared<kDim>& shared) {
  const int pieces = units(run.share, d.piece);
  const bool whole = run.units == pieces, last = i + 1 == run.units;
  auto* own = reinterpret_cast<Part<kDim>*>(d.parts) + 2 * blockIdx.x;
  auto* all = reinterpret_cast<Part<kDim>*>(d.parts) + 2 * d.blocks;
  Part<kDim>* mine = whole ? own + i % 2 : all + run.unit + i;
  const Part<kDim>* before = own + (i + 1) % 2;
  const int rows = run.share.rows * d.args.group;
  // Loaded together, before the threads wait for each other: the latency is that of the L2.
  struct Before {
    float value, top, sum;
  } had[Element<kDim>::kTurns];
  merge_quarters(
      rows, s, shared,
      [&](int half) {
        if (!whole || i == 0) return;
#pragma unroll
        for (int turn = 0; turn < Element<kDim>::kTurns; ++turn) {
          const Element<kDim> e(half, turn);
          if (e.row < rows)
            had[turn] = {before->o[e.row][e.column], before->top[e.row], before->sum[e.row]};
        }
      },
      [&](int turn, const Element<kDim>& e, float value, float top, float sum) {
        if (whole && i > 0) {
          const FoldScale scale(had[turn].top, top);
          top = scale.top;
          sum = scale.fold(had[turn].sum, sum);
          value = scale.fold(had[turn].value, value);
        }
        if (whole && last)
          write_out(d, run, e.row, kDim, e.column, Pack<float, 1>{value / sum});
        else
          store_part(mine, e.row, e.column, value, top, sum);
      });
  if (whole || !last) return;
  const int first_piece = run.share.base + run.head * pieces;
  if (arrives_last(d, run, shared, first_piece, pieces))
    fold_parts(d, run, all + first_piece, pieces);
}

}  // namespace skiff::cuda::decode
