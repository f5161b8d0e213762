// ops/reference/paging.h -- the rows of a step, and where a position lies in a cache of floats.
#pragma once
#include "ops/batch.h"

namespace skiff::reference {

// [1, kv_heads * head_dim]: a position of a sequence in `cache`, KvLayer's k or v.
inline Tensor cache_row(const Tensor& cache, const RaggedBatch& batch, int seq, int position) {
  const int64_t page_size = cache.dim[1], cols = cache.dim[2] * cache.dim[3];
  const int32_t page = batch.pages.row<int32_t>(seq)[position / page_size];
  return cache.row_range(page, 1).col_range(position % page_size * cols, cols);
}

// Calls f(sequence, row, position) for every row of the step.
template <class F>
void for_each_row(const RaggedBatch& batch, F f) {
  const int32_t* start = batch.row_start.as<int32_t>();
  for (int s = 0; s < batch.num_seqs; ++s) {
    for (int32_t r = start[s]; r < start[s + 1]; ++r) f(s, r, batch.positions.as<int32_t>()[r]);
  }
}

}  // namespace skiff::reference
