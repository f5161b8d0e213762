// ops/cpu/paging.h -- where the position of a sequence lies in a paged cache.
#pragma once
#include <vector>

#include "ops/batch.h"

namespace skiff::cpu {

// Returns the index of the position's row, counted from the start of the layer's cache.
inline int64_t cache_row(const RaggedBatch& batch, const KvLayer& kv, int sequence,
                         int64_t position) {
  const int32_t page = batch.pages.row<int32_t>(sequence)[position / kv.page_size];
  return static_cast<int64_t>(page) * kv.page_size + position % kv.page_size;
}

// Returns [kv_heads][head_dim] of that position. Pages may be further apart than they are long.
inline std::byte* cache_data(const Tensor& cache, int64_t row) {
  const int64_t page_size = cache.dim[1], width = cache.dim[2] * cache.dim[3];
  const int64_t at = row / page_size * cache.row_stride + row % page_size * width;
  return static_cast<std::byte*>(cache.data) + static_cast<size_t>(at) * bytes(cache.dtype);
}

// Returns the sequence of each row that is not padding.
inline std::vector<int32_t> sequence_of_rows(const RaggedBatch& batch) {
  const int32_t* start = batch.row_start.as<int32_t>();
  std::vector<int32_t> out(static_cast<size_t>(start[batch.num_seqs]));
  for (int s = 0; s < batch.num_seqs; ++s)
    for (int32_t r = start[s]; r < start[s + 1]; ++r) out[static_cast<size_t>(r)] = s;
  return out;
}

}  // namespace skiff::cpu
