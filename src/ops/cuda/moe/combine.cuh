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
    // All loads are issued before the first result is used, and those of copies that are not
    // permuted do not wait for their experts.
    float w[kCombineAtOnce];
    bool counts[kCombineAtOnce];
    Pack<T, kWide> v[kCombineAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      const int64_t copy = t * c.top_k + first + k;
      counts[k] = first + k < c.top_k;
      if (!counts[k]) continue;
      counts[k] = expert[first + k] >= 0;
      w[k] = c.weight[copy];
      const int64_t from = c.position == nullptr ? copy : counts[k] ? c.position[copy] : 0;
      v[k] = *reinterpret_cast<const Pack<T, kWide>*>(static_cast<const T*>(c.outer) +
                                                      from * c.hidden + at);
    }
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      if (!counts[k]) continue;
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
