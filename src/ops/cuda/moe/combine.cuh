// ops/cuda/moe/combine.cuh -- the weighted sum of what a token's experts gave, as each thread
// computes its part of it.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ops/cuda/vector.cuh"

namespace skiff::cuda {

struct Combine {
  void* out;
  int64_t out_stride;
  const void* outer;  // [copies, hidden], of the type of out
  const float* weight;
  const int32_t *expert, *position;  // position null: copies are not permuted
  const void* more;                  // null, or rows that are added to the rounded sums
  int64_t more_stride;
  int tokens, hidden, top_k;
};

constexpr int kCombineAtOnce = 8;  // copies of a token that a thread loads together

// sum = kWide neighbouring outputs of token t from column `at` on, before they are rounded.
template <class T, int kWide>
__device__ __forceinline__ void combine_columns(float (&sum)[kWide], const Combine& c, int64_t t,
                                                int at) {
  const int32_t* expert = c.expert + t * c.top_k;
#pragma unroll
  for (float& v : sum) v = 0;
  for (int first = 0; first < c.top_k; first += kCombineAtOnce) {
    // All places are loaded before the first is looked at, and all rows before the first is used.
    // Rows of copies that are not permuted do not wait for their experts.
    float w[kCombineAtOnce];
    int32_t of[kCombineAtOnce], from[kCombineAtOnce];
    Pack<T, kWide> v[kCombineAtOnce] = {};
    const int copies = min(kCombineAtOnce, c.top_k - first);
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      of[k] = -1;
      if (k >= copies) continue;
      const int64_t copy = t * c.top_k + first + k;
      of[k] = expert[first + k];
      w[k] = c.weight[copy];
      from[k] = c.position == nullptr ? static_cast<int32_t>(copy) : c.position[copy];
    }
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      if (k >= copies) continue;
      if (c.position != nullptr && of[k] < 0) from[k] = 0;  // it has no place
      v[k] = *reinterpret_cast<const Pack<T, kWide>*>(static_cast<const T*>(c.outer) +
                                                      int64_t{from[k]} * c.hidden + at);
    }
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      if (of[k] < 0) continue;
#pragma unroll
      for (int i = 0; i < kWide; ++i) sum[i] = fmaf(w[k], to_float(v[k].at[i]), sum[i]);
    }
  }
  if (c.more == nullptr) return;
  float more[kWide];
  load<kWide>(more, static_cast<const T*>(c.more) + t * c.more_stride + at);
#pragma unroll
  for (int i = 0; i < kWide; ++i) sum[i] = to_float(from_float<T>(sum[i])) + more[i];
}

}  // namespace skiff::cuda
