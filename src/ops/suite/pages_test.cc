#include "ops/suite/attention.h"

#include <algorithm>
#include <numeric>

namespace skiff::suite {

Paged::Paged(Workspace& ws, const Gqa& spec, DType cache, int page_size,
             const std::vector<Piece>& pieces, Pool pool) {
  int total = 3;  // some pages belong to nobody
  for (const Piece& p : pieces) {
    pages_.emplace_back((p.begin + p.rows + page_size - 1) / page_size);
    total += static_cast<int>(pages_.back().size());
  }
  std::vector<int32_t> free = ws.rng.shuffled(total);
  for (auto& pages : pages_) {
    for (int32_t& page : pages) {
      page = free.back();
      free.pop_back();
    }
  }
  kv.page_size = page_size;
  const int64_t half = int64_t{page_size} * spec.kv_heads * spec.head_dim;
  const auto pages_of = [&](const Tensor& memory, int64_t at) {
    Tensor pages = memory.col_range(at, half);
    pages.dim = {total, page_size, spec.kv_heads, spec.head_dim};
    return pages;
  };
  if (pool == Pool::kApart) {
    kv.k = pages_of(ws.random(cache, {total, half}), 0);
    kv.v = pages_of(ws.random(cache, {total, half}), 0);
  } else {
    // Blocks of two layers, of which this one is the second.
    const Tensor blocks = ws.random(cache, {total, 4 * half}, 1, pool == Pool::kPadded ? 8 : 0);
    kv.k = pages_of(blocks, 2 * half);
    kv.v = pages_of(blocks, 3 * half);
  }
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  Stepped first = step(ws, order, pieces);
  batch = first.batch;
  seq_ = first.seq;
}

Stepped Paged::step(Workspace& ws, const std::vector<size_t>& order,
                    const std::vector<Piece>& pieces) {
  size_t max_pages = 1;
  for (const auto& pages : pages_) max_pages = std::max(max_pages, pages.size());
  Stepped out;
  RaggedBatch& b = out.batch;
  std::vector<int32_t> tokens, positions, row_start{0}, kv_len, table;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    for (int r = 0; r < p.rows; ++r) {
      tokens.push_back(ws.rng.below(100));
      positions.push_back(p.begin + r);
      out.seq.push_back(static_cast<int>(i));
    }
    row_start.push_back(static_cast<int32_t>(positions.size()));
    kv_len.push_back(p.begin + p.rows);
    std::vector<int32_t> line = pages_[order[i]];
    line.resize(max_pages, -1);
    table.insert(table.end(), line.begin(), line.end());
    b.max_rows = std::max(b.max_rows, p.rows);
    b.max_kv = std::max(b.max_kv, p.begin + p.rows);
  }
  b.num_seqs = static_cast<int>(pieces.size());
  b.num_tokens = static_cast<int>(tokens.size());
  b.tokens = ws.ints(tokens);
  b.positions = ws.ints(positions);
  b.row_start = ws.ints(row_start);
  b.kv_len = ws.ints(kv_len);
  b.pages = ws.ints(table, {b.num_seqs, static_cast<int64_t>(max_pages)});
  b.out_rows = ws.ints({});
  b.host_row_start = {b.row_start.as<int32_t>(), row_start.size()};
  b.host_kv_len = {b.kv_len.as<int32_t>(), kv_len.size()};
  return out;
}

Tensor Paged::cache_row(const Tensor& cache, int seq, int position) const {
  const int32_t page =
      pages_[static_cast<size_t>(seq)][static_cast<size_t>(position / kv.page_size)];
  const int64_t cols = cache.dim[2] * cache.dim[3];
  return cache.row_range(page, 1).col_range(position % kv.page_size * cols, cols);
}

std::vector<Tensor> Paged::written_rows() const {
  std::vector<Tensor> out;
  for (int64_t r = 0; r < batch.num_tokens; ++r) {
    const int position = batch.positions.as<int32_t>()[r];
    out.push_back(cache_row(kv.k, seq_of(r), position));
    out.push_back(cache_row(kv.v, seq_of(r), position));
  }
  return out;
}

}  // namespace skiff::suite
