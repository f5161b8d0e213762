// ops/cuda/attention/key_tiles.cuh -- the arithmetic of attention to tiles of keys. The prefill
// kernel and the kernel that decodes in pieces share it, so that a row gets the same bits from
// both: roundings are spelled out where the compiler could contract, and sums have one order.
//
// A tile has kKeys positions from a multiple of that on. Its maximum is taken first; its weights
// are rounded to bf16 for the product with the values, and each quarter of them has a sum of its
// own, in four lanes. A tile that a row does not see leaves the row's state as it is, bit for bit.
#pragma once
#include <cmath>
#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {

template <int kDim>
constexpr int kKeys = kDim == 256 ? 64 : 128;  // positions of a tile
constexpr int kSums = 4;                       // sums of a row: one of each quarter of a tile

// The sum over the four lanes that share a row, and over the quarters of a tile.
__device__ __forceinline__ float sum_of_lanes(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}
__device__ __forceinline__ float sum_of_quarters(float a, float b, float c, float d) {
  return (a + b) + (c + d);
}

// The largest score of a row in its four lanes. Scores lie as wgmma and mma.sync leave them: every
// four of a thread are two neighbouring columns of row lane / 4, and two of row lane / 4 + 8.
template <int n>
__device__ __forceinline__ float highest(const float (&s)[n], int half) {
  float x = s[2 * half];
#pragma unroll
  for (int i = 0; i < n; i += 4) x = fmaxf(x, fmaxf(s[i + 2 * half], s[i + 2 * half + 1]));
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

// The maximum of a row's scores, in base 2, and the sum of its weights, relative to it.
struct Total {
  float top = -INFINITY, sum = 0;
};

// The online softmax of a thread's two rows, over kQuarters quarters of each tile.
template <int kQuarters>
struct TileSoftmax {
  float top[2] = {-INFINITY, -INFINITY}, sum[2][kQuarters] = {};
  float keep[2];  // the factor that rescales earlier sums
  int limit[2];   // the last position that the row sees

  // Hides what a row does not see of the scores of positions from t0 on.
  template <int n>
  __device__ __forceinline__ void hide(float (&s)[n], int t0, int window) const {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const int t = t0 + i / 4 * 8 + column + i % 2, last = limit[i / 2 % 2];
      if (t > last || (window > 0 && t <= last - window)) s[i] = -INFINITY;
    }
  }

  // Takes in the largest score of a tile.
  __device__ __forceinline__ void raise(int half, float score, float scale_log2) {
    const float before = top[half];
    top[half] = fmaxf(before, __fmul_rn(score, scale_log2));
    keep[half] = exp2_fast(before - base(half));
  }

  // Turns scores into weights and adds them up.
  template <int n>
  __device__ __forceinline__ void weigh(float (&s)[n], int half, float scale_log2) {
    constexpr int kPairs = n / 4 / kQuarters;
    const float from = base(half);
#pragma unroll
    for (int q = 0; q < kQuarters; ++q) {
      float pair[kPairs];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        float& a = s[(q * kPairs + i) * 4 + 2 * half];
        float& b = s[(q * kPairs + i) * 4 + 2 * half + 1];
        a = exp2_fast(__fmaf_rn(a, scale_log2, -from));
        b = exp2_fast(__fmaf_rn(b, scale_log2, -from));
        pair[i] = a + b;
      }
#pragma unroll
      for (int step = 1; step < kPairs; step *= 2) {
#pragma unroll
        for (int i = 0; i < kPairs; i += 2 * step) pair[i] += pair[i + step];
      }
      sum[half][q] = __fmaf_rn(sum[half][q], keep[half], pair[0]);
    }
  }

  // Begins an empty softmax of the same rows.
  __device__ __forceinline__ void restart() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = -INFINITY;
#pragma unroll
      for (int q = 0; q < kQuarters; ++q) sum[half][q] = 0;
    }
  }

 private:
  __device__ __forceinline__ float base(int half) const {
    return top[half] == -INFINITY ? 0.0f : top[half];
  }
};

// The factors that bring the results before and the next one to their common maximum. Folding
// what is empty changes nothing.
struct FoldScale {
  float top, keep, worth;
  __device__ FoldScale(float before, float next) : top(fmaxf(before, next)) {
    const float base = top == -INFINITY ? 0.0f : top;
    keep = exp2_fast(before - base);
    worth = exp2_fast(next - base);
  }
  __device__ float fold(float before, float next) const {
    return __fmaf_rn(before, keep, __fmul_rn(next, worth));
  }
  __device__ Total fold(const Total& before, const Total& next) const {
    return {top, fold(before.sum, next.sum)};
  }
};

// What scales the sum of a row's values at last.
__device__ __forceinline__ float inverse(float sum) { return __frcp_rn(sum); }

}  // namespace skiff::cuda
