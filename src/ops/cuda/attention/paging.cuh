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

// A cache whose elements are quantized. Elements are addressed in bytes.
template <KvElement kElement>
struct QuantizedCache {
  static constexpr int kBits = kElementBits<kElement>;
  uint8_t *k, *v;
  uint16_t *k_scale, *v_scale;
  int64_t k_page, v_page, k_scale_page, v_scale_page;  // bytes; scales: numbers
  int page_size, kv_heads, head_dim, scales;

  explicit QuantizedCache(const CacheArgs& a)
      : k(static_cast<uint8_t*>(a.k)),
        v(static_cast<uint8_t*>(a.v)),
        k_scale(a.k_scale),
        v_scale(a.v_scale),
        k_page(a.k_page * kBits / 8),
        v_page(a.v_page * kBits / 8),
        k_scale_page(a.k_scale_page),
        v_scale_page(a.v_scale_page),
        page_size(a.page_size),
        kv_heads(a.kv_heads),
        head_dim(a.head_dim),
        scales(a.scales) {}
  __device__ int64_t in_page(int position, int head) const {
    return (static_cast<int64_t>(position % page_size) * kv_heads + head) * head_dim * kBits / 8;
  }
  // Where the scales of a head begin; `page_stride` is k_scale_page or v_scale_page.
  __device__ int64_t scale_at(int64_t page, int64_t page_stride, int position, int head) const {
    if (scales == 0) return head;
    return page * page_stride +
           (static_cast<int64_t>(head) * page_size + position % page_size) * scales;
  }
};

// The sequence that owns `row`, or num_seqs if the row is padding. Every thread of the block calls
// this, and all get the answer.
__device__ inline int sequence_of(const Rows& rows, int row) {
  // Where all sequences decode, a row and its sequence have one number.
  if (row < rows.num_seqs && __ldcg(rows.row_start + row) <= row &&
      row < __ldcg(rows.row_start + row + 1))
    return row;
  int before = 0;  // sequences that end at or before the row
  for (int first = 0; first < rows.num_seqs; first += static_cast<int>(blockDim.x)) {
    const int s = first + static_cast<int>(threadIdx.x);
    before += __syncthreads_count(s < rows.num_seqs && __ldcg(rows.row_start + s + 1) <= row);
  }
  return before;
}

// The page of the sequence's position.
__device__ __forceinline__ int64_t page_of(const Rows& rows, int seq, int position, int page_size) {
  return __ldcg(rows.pages + seq * rows.pages_stride + position / page_size);
}

// f(activation type, cache), for types that values name.
template <class F>
void with_types(bool act_bf16, const CacheArgs& cache, F f) {
  const auto with_cache = [&](auto act) {
    switch (cache.element) {
      case KvElement::kF32:
        return f(act, Cache<float>(cache));
      case KvElement::kBf16:
        return f(act, Cache<__nv_bfloat16>(cache));
      case KvElement::kI8:
        return f(act, QuantizedCache<KvElement::kI8>(cache));
      case KvElement::kE4M3:
        return f(act, QuantizedCache<KvElement::kE4M3>(cache));
      case KvElement::kU4:
        return f(act, QuantizedCache<KvElement::kU4>(cache));
    }
  };
  act_bf16 ? with_cache(__nv_bfloat16{}) : with_cache(float{});
}

}  // namespace skiff::cuda
