// ops/suite/attention.h -- paged caches and ragged batches for the op suite.
#pragma once
#include <vector>

#include "ops/suite/suite.h"

namespace skiff::suite {

// A sequence's rows in a step, at positions begin, begin + 1, ...
struct Piece {
  int begin = 0, rows = 0;
};

struct Stepped {
  RaggedBatch batch;
  std::vector<int> seq;  // each row's sequence, as an index into the batch
};

// Where the pages of a layer lie: in memory of their own; in blocks of several layers, as in a
// KvCache; in such blocks with a gap between them.
enum class Pool { kApart, kBlocks, kPadded };
constexpr Pool kPools[] = {Pool::kApart, Pool::kBlocks};

// A layer's cache full of random values, the pages of each sequence scattered over it, and the
// batch of one step. Page numbers beyond what a sequence needs are -1 and must not be used.
class Paged {
 public:
  Paged(Workspace& ws, const Gqa& spec, DType cache, int page_size,
        const std::vector<Piece>& pieces, Pool pool = Pool::kBlocks);
  Paged(Workspace& ws, const Gqa& spec, const KvFormat& cache, int page_size,
        const std::vector<Piece>& pieces, Pool pool = Pool::kBlocks);

  // Another step on the same pages: order[i] is the sequence that comes i-th.
  Stepped step(Workspace& ws, const std::vector<size_t>& order, const std::vector<Piece>& pieces);

  int seq_of(int64_t row) const { return seq_[static_cast<size_t>(row)]; }
  // [1, kv_heads * head_dim] of cache (kv.k or kv.v), for a sequence of the first batch; in a
  // quantized cache the bytes of these elements.
  Tensor cache_row(const Tensor& cache, int seq, int position) const;
  // [1, scales of a head] of kv.k_scale or kv.v_scale.
  Tensor scale_row(const Tensor& scales, int seq, int position, int head) const;
  // The values of a position's keys or values, [kv_heads * head_dim]: of a quantized cache rounded
  // to bf16, or exact products of scales and elements (ops/kv_quant.h).
  std::vector<double> keys(int seq, int position, bool exact = false) const {
    return row(kv.k, kv.k_scale, seq, position, exact);
  }
  std::vector<double> values(int seq, int position, bool exact = false) const {
    return row(kv.v, kv.v_scale, seq, position, exact);
  }
  std::vector<Tensor> written_rows() const;  // the part of the cache that gqa_store may write

  KvLayer kv;
  RaggedBatch batch;

 private:
  void make_floats(Workspace& ws, const Gqa& spec, DType cache, int total, Pool pool);
  void make_quantized(Workspace& ws, const Gqa& spec, int total, Pool pool);
  int32_t page_of(int seq, int position) const {
    return pages_[static_cast<size_t>(seq)][static_cast<size_t>(position / kv.page_size)];
  }
  std::vector<double> row(const Tensor& cache, const Tensor& scales, int seq, int position,
                          bool exact) const;

  std::vector<std::vector<int32_t>> pages_;
  std::vector<int> seq_;
};

// A Gqa whose rope covers `rope_dim` dims of each head; -1: all.
Gqa gqa(int heads, int kv_heads, int head_dim, int window = 0, int rope_dim = -1,
        bool interleaved = false);

// Expects what one head of one row should get: `out` and `q` are that row, [1, heads * head_dim].
// `paged` holds the keys and values of sequence `seq` up to `position`.
void expect_attention_at(const Tensor& out, const Tensor& q, const Gqa& spec, const Paged& paged,
                         int seq, int position, int head);

struct AttendCase {
  Gqa spec;
  DType act;
  KvFormat cache;
  int page_size;
  std::vector<Piece> pieces;
  int checked_rows = 1 << 20;  // rows that are compared with the formula; all must be numbers
  Pool pool = Pool::kBlocks;
};
void attend_case(Ops& ops, const AttendCase& c);

// Sequences as (first position, rows): decodes, checks, chunks, idle ones, page edges of 64.
inline const std::vector<Piece> kMixed = {{0, 1},  {62, 1}, {63, 1}, {64, 1},  {130, 0}, {0, 0},
                                          {61, 4}, {0, 65}, {5, 17}, {127, 2}, {200, 1}};

// The same prompts are run through gqa_store and gqa_attend, cut into steps in another way, in
// another order within the batch and on other pages; every row must come out alike, bit for bit.
struct Cut {
  std::vector<int> chunks;  // rows per step, the last repeated until the prompt is done
  bool reversed = false;    // order of the sequences
  uint64_t page_seed = 1;
  int page_size = 16;
};
void expect_cuts_alike(Ops& ops, const Gqa& spec, DType act, const KvFormat& cache,
                       const std::vector<int>& lengths, const std::vector<Cut>& cuts);

}  // namespace skiff::suite
