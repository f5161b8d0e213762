// ops/cuda/moe/combine.cuh -- the weighted sum of what a token's experts gave, as each thread
// computes its part of it.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

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

template <class T, int kWide>
__device__ __forceinline__ void load_more(float (&more)[kWide], const Combine& c, int64_t t,
                                          int at) {
  load<kWide>(more, static_cast<const T*>(c.more) + t * c.more_stride + at);
}
// Rounds the sums and adds what load_more() has loaded.
template <class T, int kWide>
__device__ __forceinline__ void add_loaded(float (&sum)[kWide], const float (&more)[kWide]) {
#pragma unroll
  for (int i = 0; i < kWide; ++i) sum[i] = to_float(from_float<T>(sum[i])) + more[i];
}
// Rounds the sums and adds the rows of `more`.
template <class T, int kWide>
__device__ __forceinline__ void add_more(float (&sum)[kWide], const Combine& c, int64_t t, int at) {
  if (c.more == nullptr) return;
  float more[kWide];
  load_more<T>(more, c, t, at);
  add_loaded<T>(sum, more);
}

// sum[p] = kWide neighbouring sums of token t from column at[p] on, without `more`. Where `is[p]`
// is false there are none.
template <class T, int kPieces, int kWide>
__device__ __forceinline__ void combine_pieces(float (&sum)[kPieces][kWide], const Combine& c,
                                               int64_t t, const int (&at)[kPieces],
                                               const bool (&is)[kPieces]) {
  const int32_t* expert = c.expert + t * c.top_k;
#pragma unroll
  for (auto& piece : sum)
#pragma unroll
    for (float& v : piece) v = 0;
  for (int first = 0; first < c.top_k; first += kCombineAtOnce) {
    // All places are loaded before the first is looked at, and all rows before the first is used.
    // Rows of copies that are not permuted do not wait for their experts.
    float w[kCombineAtOnce];
    int32_t of[kCombineAtOnce], from[kCombineAtOnce];
    Pack<T, kWide> v[kPieces][kCombineAtOnce] = {};
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
      const T* row = static_cast<const T*>(c.outer) + int64_t{from[k]} * c.hidden;
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        if (is[p]) v[p][k] = *reinterpret_cast<const Pack<T, kWide>*>(row + at[p]);
    }
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      if (of[k] < 0) continue;
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
#pragma unroll
        for (int i = 0; i < kWide; ++i) sum[p][i] = fmaf(w[k], to_float(v[p][k].at[i]), sum[p][i]);
    }
  }
}

// sum = kWide neighbouring outputs of token t from column `at` on, before they are rounded.
template <class T, int kWide>
__device__ __forceinline__ void combine_columns(float (&sum)[kWide], const Combine& c, int64_t t,
                                                int at) {
  float one[1][kWide];
  combine_pieces<T>(one, c, t, {at}, {true});
#pragma unroll
  for (int i = 0; i < kWide; ++i) sum[i] = one[0][i];
  add_more<T>(sum, c, t, at);
}

// combine_columns() by a warp whose lanes all have outputs of token t.
template <class T, int kWide>
__device__ __forceinline__ void combine_in_warp(float (&sum)[kWide], const Combine& c, int64_t t,
                                                int at) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (float& v : sum) v = 0;
#pragma unroll 1
  for (int first = 0; first < c.top_k; first += kCombineAtOnce) {
    // Where the copy of this lane is, and its weight; -1: it adds nothing.
    int32_t mine = -1;
    float weight = 0;
    if (const int k = first + lane; lane < kCombineAtOnce && k < c.top_k) {
      const int64_t copy = t * c.top_k + k;
      const int32_t from = c.position == nullptr ? static_cast<int32_t>(copy) : c.position[copy];
      mine = c.expert[copy] < 0 ? -1 : from;
      weight = c.weight[copy];
    }
    // All rows are under way before the first is used.
    const auto* rows = static_cast<const T*>(c.outer) + at;
    Pack<T, kWide> v[kCombineAtOnce];
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      const int32_t from = max(0, __shfl_sync(kAllLanes, mine, k));
      const auto* row = reinterpret_cast<const Pack<T, kWide>*>(rows + int64_t{from} * c.hidden);
      v[k] = *row;
    }
    const unsigned is = __ballot_sync(kAllLanes, mine >= 0);
#pragma unroll
    for (int k = 0; k < kCombineAtOnce; ++k) {
      const float w = __shfl_sync(kAllLanes, weight, k);
      const bool adds = is >> k & 1;
#pragma unroll
      for (int i = 0; i < kWide; ++i)
        sum[i] = adds ? fmaf(w, to_float(v[k].at[i]), sum[i]) : sum[i];
    }
  }
  add_more<T>(sum, c, t, at);
}

}  // namespace skiff::cuda
