// ops/cuda/attention/args.h -- batches and caches as plain pointers, the form in which kernels get
// them.
#pragma once
#include <cstdint>

namespace skiff::cuda {

// A RaggedBatch.
struct Rows {
  const int32_t *row_start, *positions, *kv_len, *pages;
  int64_t pages_stride;  // elements from one sequence's page numbers to the next
  int num_seqs, num_tokens;
};

// A KvLayer: [page, position, kv head, dim], f32 or bf16.
struct CacheArgs {
  void *k, *v;
  int64_t k_page, v_page;  // elements from one page to the next
  int page_size, kv_heads, head_dim;
  bool bf16;
};

}  // namespace skiff::cuda
