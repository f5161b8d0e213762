// ops/cuda/attention/decode_compute.cuh -- the split-KV decode kernel's main loop body: scores,
// online softmax and values of 16 positions on the tensor cores.
#pragma once
#include <cuda_bf16.h>

#include <cmath>

#include "ops/cuda/attention/decode_shape.cuh"
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::decode {

// The offset of 16-byte chunk `chunk` of row `row` in a tile, whose rows are cut into pieces of 128
// bytes in the 128-byte swizzle.
__device__ __forceinline__ uint32_t swizzled_offset(int row, int chunk) {
  return static_cast<uint32_t>((chunk / 8) * kTile * 128 + row * 128 +
                               (((chunk % 8) ^ (row % 8)) * 16));
}

// Units of a row's sums beside its softmax (decode_bytes.cuh).
template <class S>
struct Units {
  __device__ void begin_piece() {}
  // What the sums of values of row lane / 4 + 8 * half are multiples of.
  __device__ float of_values(int) const { return 1; }
};

// What a warp keeps during a run: the queries, and the online softmax of rows lane / 4 and
// lane / 4 + 8. Scores and maxima are in base 2.
template <class S>
struct Softmax {
  static constexpr int kColumns = S::kColumns;
  uint32_t q[S::kDim / 16][4];
  float o[kColumns / 8][4];
  float top[2], sum[2];
  int limit[2];  // the last position that the row sees
  [[no_unique_address]] Units<S> units;
};

// The positions of a tile and the value columns that a warp works on.
struct WarpPart {
  int quarter, column;
};
template <class S>
__device__ WarpPart part_of_warp() {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return {warp % kQuarters, warp / kQuarters * S::kColumns};
}

// The value column, of those of the warp, that lies in column c of a lane's n-th fragment.
template <class S>
__device__ int column_of(int n, int c) {
  if constexpr (S::kQuantized) return c * (S::kColumns / 8) + n;
  return n * 8 + c;
}

// Begins an empty softmax.
template <class S>
__device__ void begin_piece(Softmax<S>& s) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    s.top[half] = -INFINITY;
    s.sum[half] = 0;
  }
#pragma unroll
  for (int n = 0; n < S::kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s.o[n][i] = 0;
  }
  s.units.begin_piece();
}

// Loads a row of queries, or zeros, in the order in which multiply_keys() takes their elements.
template <class S>
requires(!S::kQuantized) __device__
    void load_queries(Softmax<S>& s, int half, const __nv_bfloat16* q) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int c = 0; c < S::kDim / 16; ++c) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      s.q[c][half + 2 * k] = q ? *reinterpret_cast<const uint32_t*>(q + first + c * 16 + k * 8) : 0;
    }
  }
}

template <class S>
__device__ void begin_run(const DecodeArgs& d, const Run& run, Softmax<S>& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* q = static_cast<const __nv_bfloat16*>(d.args.q);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = lane / 4 + half * kHalf, group = d.args.group;
    const bool real = i < run.share.rows * group;
    const int64_t row = run.share.row + (real ? i / group : 0);
    const int head = run.head * group + (real ? i % group : 0);
    load_queries(s, half, real ? q + row * d.args.q_stride + head * S::kDim : nullptr);
    s.limit[half] = run.share.kv_len - run.share.rows + i / group;
  }
  begin_piece(s);
}

// Scores of this warp's 16 positions with all rows.
template <class S>
requires(!S::kQuantized) __device__
    void multiply_keys(const DecodeArgs&, const Run&, Softmax<S>& s, Shared<S>& shared, int stage,
                       float (&score)[2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = part_of_warp<S>().quarter * 16 + lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
  const uint32_t k = shared_address(shared.k[stage]);
#pragma unroll
  for (int c = 0; c < S::kDim / 16; ++c) {
    uint32_t b[4];
    load_matrices(b, k + swizzled_offset(row, c * 2 + chunk));
    mma_bf16(score[0], s.q[c], b[0], b[1]);
    mma_bf16(score[1], s.q[c], b[2], b[3]);
  }
}

// Values past the context may be any bits, and zero times NaN is NaN: clears those of the warp's
// positions from t0 on that do not lie in [seen, end).
template <class S>
requires(!S::kQuantized) __device__
    void clear_unseen(Shared<S>& shared, int stage, int t0, int seen, int end) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WarpPart my = part_of_warp<S>();
  constexpr int kChunks = S::kColumns / 8;
#pragma unroll 1
  for (int i = lane; i < 16 * kChunks; i += 32) {
    const int row = i / kChunks, t = t0 + row;
    if (t >= end || t < seen) {
      const uint32_t at = swizzled_offset(my.quarter * 16 + row, my.column / 8 + i % kChunks);
      *reinterpret_cast<uint4*>(shared.v[stage] + at) = uint4{};
    }
  }
}

// Adds the values of this warp's positions. Each probability is the sum of two bf16 numbers, so
// that rounding costs nothing.
template <class S>
requires(!S::kQuantized) __device__
    void multiply_values(const DecodeArgs&, const Run&, Softmax<S>& s, Shared<S>& shared, int stage,
                         const uint32_t (&high)[4], const uint32_t (&low)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WarpPart my = part_of_warp<S>();
  const int row = my.quarter * 16 + lane / 8 % 2 * 8 + lane % 8, chunk = lane / 16;
  const uint32_t v = shared_address(shared.v[stage]);
#pragma unroll
  for (int n = 0; n < S::kColumns / 16; ++n) {
    uint32_t b[4];
    load_matrices_transposed(b, v + swizzled_offset(row, my.column / 8 + n * 2 + chunk));
    mma_bf16(s.o[2 * n], high, b[0], b[1]);
    mma_bf16(s.o[2 * n + 1], high, b[2], b[3]);
    mma_bf16(s.o[2 * n], low, b[0], b[1]);
    mma_bf16(s.o[2 * n + 1], low, b[2], b[3]);
  }
}

// Returns whether some row does not see all of 16 positions from t0 on.
__device__ __forceinline__ bool is_edge(const DecodeArgs& d, const Run& run, int t0) {
  const int window = d.args.window;
  return t0 + 15 > run.share.kv_len - run.share.rows ||
         (window > 0 && t0 < run.share.kv_len - window);
}
// Returns whether no row sees some of them.
__device__ __forceinline__ bool has_unseen(const DecodeArgs& d, const Run& run, int t0) {
  return t0 + 16 > run.share.kv_len || t0 < first_seen(run.share, d.args.window);
}

// Makes scores of what a row does not see -inf.
template <class S>
__device__ __forceinline__ void mask_scores(const DecodeArgs& d, const Softmax<S>& s, int t0,
                                            float (&score)[2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, window = d.args.window;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = t0 + n * 8 + lane % 4 * 2 + i % 2, limit = s.limit[i / 2];
      if (t > limit || (window > 0 && t <= limit - window)) score[n][i] = -INFINITY;
    }
  }
}

// The largest score of row lane / 4 + 8 * half, these 16 included.
template <class S>
__device__ __forceinline__ float largest_score(const Softmax<S>& s, const float (&score)[2][4],
                                               int half) {
  float x = fmaxf(fmaxf(score[0][2 * half], score[0][2 * half + 1]),
                  fmaxf(score[1][2 * half], score[1][2 * half + 1]));
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
  return fmaxf(s.top[half], x);
}

// Makes `top` the row's largest score. Its sum is rescaled, and its values are multiplied by the
// same and by `units`.
template <class S>
__device__ __forceinline__ void rescale(Softmax<S>& s, int half, float top, float units = 1) {
  const float keep = s.top[half] == -INFINITY ? 0.0f : exp2_fast(s.top[half] - top);
  s.top[half] = top;
  s.sum[half] *= keep;
  const float values = keep * units;
#pragma unroll
  for (int n = 0; n < S::kColumns / 8; ++n) {
    s.o[n][2 * half] *= values;
    s.o[n][2 * half + 1] *= values;
  }
}

// Attends to 16 positions from t0 on: this warp's quarter of the tile in that stage.
template <class S>
requires(!S::kBytes) __device__ void attend_16(const DecodeArgs& d, const Run& run, Softmax<S>& s,
                                               int t0, Shared<S>& shared, int stage) {
  float score[2][4] = {};
  multiply_keys(d, run, s, shared, stage, score);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] *= d.scale_log2;
  }
  const bool edge = is_edge(d, run, t0);
  if (edge) mask_scores(d, s, t0, score);
  const float top[2] = {largest_score(s, score, 0), largest_score(s, score, 1)};
  if (__any_sync(kAllLanes, top[0] > s.top[0] || top[1] > s.top[1])) {
    rescale(s, 0, top[0]);
    rescale(s, 1, top[1]);
  }
  // The A operand of the second product: both halves for n = 0, then both for n = 1.
  uint32_t high[4], low[4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float base = s.top[half] == -INFINITY ? 0.0f : s.top[half];
      const float a = exp2_fast(score[n][2 * half] - base);
      const float b = exp2_fast(score[n][2 * half + 1] - base);
      s.sum[half] += a + b;
      const uint32_t both = pack_bf16(a, b);
      high[n * 2 + half] = both;
      low[n * 2 + half] = pack_bf16(a - low_bf16(both), b - high_bf16(both));
    }
  }
  if (edge && has_unseen(d, run, t0)) {
    clear_unseen(shared, stage, t0, first_seen(run.share, d.args.window), run.share.kv_len);
    fence_async();  // TMA writes here next
    __syncwarp();
  }
  if constexpr (S::kQuantized)
    multiply_values(d, run, s, shared, stage, high);
  else
    multiply_values(d, run, s, shared, stage, high, low);
}

}  // namespace skiff::cuda::decode
