// ops/cuda/attention/paging.cuh -- how kernels find the sequence of a row, and where a position
// lies in the paged cache.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/attention/args.h"

namespace skiff::cuda {

template <class T>
struct Cache {
  T *k, *v;
  int64_t k_page, v_page;
  int page_size, kv_heads, head_dim;

  explicit Cache(const CacheArgs& a)
      : k(static_cast<T*>(a.k)),
        v(static_cast<T*>(a.v)),
        k_page(a.k_page),
        v_page(a.v_page),
        page_size(a.page_size),
        kv_heads(a.kv_heads),
        head_dim(a.head_dim) {}
  __device__ int64_t in_page(int position, int head) const {
    return (static_cast<int64_t>(position % page_size) * kv_heads + head) * head_dim;
  }
};

// The sequence that owns `row`, or num_seqs if the row is padding. Every thread of the block calls
// this, and all get the answer.
__device__ inline int sequence_of(const Rows& rows, int row) {
  int before = 0;  // sequences that end at or before the row
  for (int first = 0; first < rows.num_seqs; first += static_cast<int>(blockDim.x)) {
    const int s = first + static_cast<int>(threadIdx.x);
    before += __syncthreads_count(s < rows.num_seqs && rows.row_start[s + 1] <= row);
  }
  return before;
}

// f(activation type, cache type), for the types that two flags name.
template <class F>
void with_types(bool act_bf16, bool cache_bf16, F f) {
  using B = __nv_bfloat16;
  if (act_bf16) {
    cache_bf16 ? f(B{}, B{}) : f(B{}, float{});
  } else {
    cache_bf16 ? f(float{}, B{}) : f(float{}, float{});
  }
}

}  // namespace skiff::cuda
