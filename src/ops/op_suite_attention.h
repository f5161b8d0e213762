// ops/op_suite_attention.h -- paged caches and ragged batches for the op suite.
#pragma once
#include <vector>

#include "ops/op_suite.h"

namespace skiff::suite {

// What a sequence brings to a step: rows at positions begin, begin + 1, ...
struct Piece {
  int begin = 0, rows = 0;
};

struct Stepped {
  RaggedBatch batch;
  std::vector<int> seq;  // of each row, its index in the batch
};

// A layer's cache full of random values, the pages of each sequence scattered over it, and the
// batch of one step. Page numbers beyond what a sequence needs are -1: nobody may follow them.
class Paged {
 public:
  Paged(Workspace& ws, const Gqa& spec, DType cache, int page_size,
        const std::vector<Piece>& pieces);

  // Another step on the same pages: order[i] is the sequence that comes i-th.
  Stepped step(Workspace& ws, const std::vector<size_t>& order, const std::vector<Piece>& pieces);

  int seq_of(int64_t row) const { return seq_[static_cast<size_t>(row)]; }
  // [1, kv_heads * head_dim] of cache (kv.k or kv.v), for a sequence of the first batch.
  Tensor cache_row(const Tensor& cache, int seq, int position) const;
  std::vector<Tensor> written_rows() const;  // what gqa_store may write of the cache

  KvLayer kv;
  RaggedBatch batch;

 private:
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int> seq_;
};

}  // namespace skiff::suite
