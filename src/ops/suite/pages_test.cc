#include "ops/suite/attention.h"

#include <algorithm>
#include <numeric>

#include "base/round_up.h"
#include "ops/kv_quant.h"

namespace skiff::suite {
namespace {

// The value of one code, straight from the definitions of the formats.
double element_value(DType dtype, uint8_t code) {
  if (dtype == DType::kI8) return static_cast<int8_t>(code);
  if (dtype == DType::kU4) return code;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -size : size;
}

// Random elements, scales and zero points: all codes but e4m3's two NaNs, which nothing stores.
void fill_quantized(Rng& rng, const KvFormat& format, const Tensor& elements, const Tensor& scales,
                    double scale) {
  auto* bytes = static_cast<uint8_t*>(elements.data);
  const int64_t stride = elements.row_stride * bits(elements.dtype) / 8;
  const int64_t size = elements.cols() * bits(elements.dtype) / 8;
  for (int64_t page = 0; page < elements.rows(); ++page)
    for (int64_t i = 0; i < size; ++i) {
      auto code = static_cast<uint8_t>(rng.below(256));
      if (format.dtype == DType::kF8E4M3 && (code & 0x7f) == 0x7f) code ^= 1;
      bytes[page * stride + i] = code;
    }
  for (int64_t r = 0; r < scales.rows(); ++r)
    for (int64_t c = 0; c < scales.cols(); ++c)
      put(scales, r, c,
          format.zero && c % 2 == 1 ? rng.below(16) : scale * (0.25 + 1.5 * rng.uniform()));
}

}  // namespace

Paged::Paged(Workspace& ws, const Gqa& spec, DType cache, int page_size,
             const std::vector<Piece>& pieces, Pool pool)
    : Paged(ws, spec, KvFormat{.dtype = cache}, page_size, pieces, pool) {}

Paged::Paged(Workspace& ws, const Gqa& spec, const KvFormat& cache, int page_size,
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
  kv.format = cache;
  if (cache.quantized())
    make_quantized(ws, spec, total, pool);
  else
    make_floats(ws, spec, cache.dtype, total, pool);
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  Stepped first = step(ws, order, pieces);
  batch = first.batch;
  seq_ = first.seq;
}

void Paged::make_floats(Workspace& ws, const Gqa& spec, DType cache, int total, Pool pool) {
  const int64_t half = int64_t{kv.page_size} * spec.kv_heads * spec.head_dim;
  const auto pages_of = [&](const Tensor& memory, int64_t at) {
    Tensor pages = memory.col_range(at, half);
    pages.dim = {total, kv.page_size, spec.kv_heads, spec.head_dim};
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
}

// Makes pages laid out as a KvCache has them: the elements of keys and values, then their scales;
// each part begins on 16 bytes.
void Paged::make_quantized(Workspace& ws, const Gqa& spec, int total, Pool pool) {
  const int64_t half = round_up(
      int64_t{kv.page_size} * spec.kv_heads * spec.head_dim * bits(kv.format.dtype) / 8, 16);
  const int numbers = kv_scales(kv.format, spec.head_dim);
  const int64_t scales = round_up(int64_t{kv.page_size} * spec.kv_heads * numbers * 2, 16);
  const int64_t part[] = {0, half, 2 * half, 2 * half + scales}, layer = 2 * (half + scales);
  const bool apart = pool == Pool::kApart;
  // The pages hold two layers, and this one is the second.
  const Tensor blocks =
      ws.output(DType::kU8, {total, apart ? layer : 2 * layer}, pool == Pool::kPadded ? 16 : 0);
  const auto part_of = [&](int i, DType dtype, std::array<int64_t, 4> dim) {
    Tensor t = blocks;
    t.data = blocks.as<uint8_t>() + part[i] + (apart ? 0 : layer);
    t.dtype = dtype;
    t.dim = dim;
    t.row_stride = blocks.row_stride * 8 / bits(dtype);
    return t;
  };
  const auto elements = [&](int i) {
    return part_of(i, kv.format.dtype, {total, kv.page_size, spec.kv_heads, spec.head_dim});
  };
  const auto scales_of = [&](int i) {
    return part_of(i, DType::kBF16, {total, spec.kv_heads, kv.page_size, numbers});
  };
  kv.k = elements(0), kv.v = elements(1);
  kv.k_scale = kv.format.fixed ? ws.output(DType::kBF16, {spec.kv_heads}) : scales_of(2);
  kv.v_scale = kv.format.fixed ? ws.output(DType::kBF16, {spec.kv_heads}) : scales_of(3);
  const double largest = kv.format.dtype == DType::kU4   ? 15
                         : kv.format.dtype == DType::kI8 ? 127
                                                         : 448;
  fill_quantized(ws.rng, kv.format, kv.k, kv.k_scale, 1.5 / largest);
  fill_quantized(ws.rng, kv.format, kv.v, kv.v_scale, 4 / largest);
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
  const int64_t cols = cache.dim[2] * cache.dim[3];
  Tensor row =
      cache.row_range(page_of(seq, position), 1).col_range(position % kv.page_size * cols, cols);
  if (!kv.format.quantized()) return row;
  return host_tensor(row.data, DType::kU8, {1, cols * bits(cache.dtype) / 8});
}

Tensor Paged::scale_row(const Tensor& scales, int seq, int position, int head) const {
  if (kv.format.fixed) return scales.row_range(head, 1);
  const int64_t at = (head * scales.dim[2] + position % kv.page_size) * scales.dim[3];
  return scales.row_range(page_of(seq, position), 1).col_range(at, scales.dim[3]);
}

std::vector<double> Paged::row(const Tensor& cache, const Tensor& scales, int seq, int position,
                               bool exact) const {
  const Tensor elements = cache_row(cache, seq, position);
  const int64_t dim = cache.dim[3];
  std::vector<double> out(static_cast<size_t>(cache.dim[2] * dim));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto at_i = static_cast<int64_t>(i);
    if (!kv.format.quantized()) {
      out[i] = at(elements, 0, at_i);
      continue;
    }
    const Tensor scale = scale_row(scales, seq, position, static_cast<int>(at_i / dim));
    const bool nibbles = kv.format.dtype == DType::kU4;
    const uint8_t byte = elements.as<uint8_t>()[nibbles ? i / 2 : i];
    const auto code = static_cast<uint8_t>(nibbles ? byte >> i % 2 * 4 & 15 : byte);
    const int64_t group = kv.format.group > 0 ? at_i % dim / kv.format.group : 0;
    const double zero = kv.format.zero ? at(scale, 0, 2 * group + 1) : 0;
    const double value = at(scale, 0, kv.format.zero ? 2 * group : group) *
                         (element_value(kv.format.dtype, code) - zero);
    out[i] = exact ? value : rounded(value, DType::kBF16);
  }
  return out;
}

std::vector<Tensor> Paged::written_rows() const {
  std::vector<Tensor> out;
  for (int64_t r = 0; r < batch.num_tokens; ++r) {
    const int position = batch.positions.as<int32_t>()[r];
    out.push_back(cache_row(kv.k, seq_of(r), position));
    out.push_back(cache_row(kv.v, seq_of(r), position));
    if (!kv.format.quantized() || kv.format.fixed) continue;
    for (int h = 0; h < static_cast<int>(kv.k.dim[2]); ++h) {
      out.push_back(scale_row(kv.k_scale, seq_of(r), position, h));
      out.push_back(scale_row(kv.v_scale, seq_of(r), position, h));
    }
  }
  return out;
}

}  // namespace skiff::suite
