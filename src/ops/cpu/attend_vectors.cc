// Attention to a block of positions in vectors of floats, whatever queries and cache hold.
#include "ops/cpu/attend_context.h"
#include "ops/cpu/rows.h"
#include "ops/kv_quant.h"
#include "ops/latent_row.h"

namespace skiff::cpu {

// Loads the queries as [heads][rows * group][dim].
void load_queries(const Context& c, const RowBlock& b, const Heads& heads, const Workspace& w) {
  float* to = w.q;
  const int first = heads.first * c.group(), group = c.group();
  for (int h = first; h < first + heads.count * group; h += group)
    for (int32_t r = b.row; r < b.row + b.rows; ++r)
      for (int i = h; i < h + group; ++i)
        for (const HeadVectors& part : c.call.q) {
          copy_row(c.kernels, to, DType::kF32, part.at(r, i), part.dtype, part.dim);
          to += part.dim;
        }
}

void find_rows(const Context& c, int seq, const Tensor& cache, const Tensor& scales, int head,
               int64_t first, int count, Found& out) {
  const int32_t* pages = c.batch.pages.row<int32_t>(seq);
  const int64_t dim = cache.dim[3];
  const auto step = static_cast<int64_t>(byte_size(cache.dtype, cache.dim[2] * dim));
  const auto into = static_cast<int64_t>(byte_size(cache.dtype, head * dim));
  const int64_t next_scale = c.kv.format.fixed ? 0 : scales.dim[3];
  int64_t page = first / c.kv.page_size, in_page = first % c.kv.page_size;
  for (int j = 0; j < count; ++page, in_page = 0) {
    const std::byte* at = static_cast<const std::byte*>(cache.data) +
                          byte_size(cache.dtype, pages[page] * cache.row_stride) + in_page * step +
                          into;
    const uint16_t* scale = nullptr;
    if (c.kv.format.quantized() && scales.data != nullptr)
      scale = &kv_head(cache, scales, c.kv.format, pages[page], in_page, head).scales->bits;
    for (; j < count && in_page < c.kv.page_size; ++j, ++in_page, at += step) {
      out.row[j] = at;
      out.scale[j] = scale;
      if (scale != nullptr) scale += next_scale;
    }
  }
}

Seeing rows_that_see(const Context& c, const RowBlock& b, int64_t first, const Workspace& w) {
  const int64_t end = first + kKvBlock;
  int32_t from = 0, to = b.rows;
  while (from < to && c.position(b.row + from) < first) ++from;
  while (to > from && c.first_seen(b.row + to - 1) >= end) --to;
  if (from == to) return {from, to, 0};
  const int64_t group = c.group();
  for (int32_t i = from; i < to; ++i) {
    const int64_t row = b.row + i;
    std::fill_n(w.begin + i * group, group,
                static_cast<int32_t>(std::max(c.first_seen(row), first) - first));
    std::fill_n(w.end + i * group, group,
                static_cast<int32_t>(std::min(c.position(row) + 1, end) - first));
  }
  return {from, to, static_cast<int>(std::min(c.position(b.row + to - 1) + 1, end) - first)};
}

namespace {

KvElement element_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return KvElement::kLatent;
    case DType::kF32:
      return KvElement::kF32;
    case DType::kBF16:
      return KvElement::kBf16;
    case DType::kI8:
      return KvElement::kI8;
    case DType::kF8E4M3:
      return KvElement::kE4M3;
    default:
      SKIFF_CHECK(dtype == DType::kU4, "a cache of {}", name(dtype));
      return KvElement::kU4;
  }
}

// One block of context positions of one kv head.
struct KvSpan {
  int head;
  int64_t first;
  int keys;
};

// Loads the span's keys and values as f32. The rows of a head lie far apart, which hides the
// pattern from the processor, so the rows of the next span are prefetched.
void load_kv(const Context& c, const RowBlock& b, const KvSpan& span, const KvSpan& next,
             const Workspace& w) {
  Found k, v, next_k, next_v;
  const Tensor& values = c.call.values;
  find_rows(c, b.seq, c.kv.k, c.kv.k_scale, span.head, span.first, span.keys, k);
  find_rows(c, b.seq, values, c.kv.v_scale, span.head, span.first, span.keys, v);
  find_rows(c, b.seq, c.kv.k, c.kv.k_scale, next.head, next.first, next.keys, next_k);
  find_rows(c, b.seq, values, c.kv.v_scale, next.head, next.first, next.keys, next_v);
  const AttendShape& shape = c.call.shape;
  const LatentRow row = {.rank = shape.v_dim, .rope = c.call.rope};
  c.kernels.load_kv(w.kt, w.v, c.o_stride,
                    {.k = k.row,
                     .v = v.row,
                     .k_scale = k.scale,
                     .v_scale = v.scale,
                     .group = c.kv.k.dtype == DType::kU8 ? kLatentGroup : c.kv.format.group,
                     .keys = span.keys,
                     .dim = shape.dim,
                     .v_dim = shape.v_dim,
                     .element = element_of(c.kv.k.dtype),
                     .scales_at = row.scales_at(),
                     .rope_at = row.rope_at(),
                     .next_k = next_k.row,
                     .next_v = next_v.row,
                     .ahead = next.keys});
}

}  // namespace

void attend_block(const Context& c, const RowBlock& b, const Heads& heads, int64_t first,
                  const Workspace& w, const State& state) {
  const int64_t end = first + kKvBlock, limit = c.position(b.row + b.rows - 1) + 1;
  const auto [from, to, keys] = rows_that_see(c, b, first, w);
  if (from == to) return;
  const int64_t dim = c.call.shape.dim;
  KvSpan span = {heads.first, first, keys};
  const KvSpan after = {heads.first, end,
                        static_cast<int>(std::clamp<int64_t>(limit - end, 0, kKvBlock))};
  for (int h = 0; h < heads.count; ++h, ++span.head) {
    const bool last = h + 1 == heads.count;
    load_kv(c, b, span, last ? after : KvSpan{span.head + 1, first, span.keys}, w);
    const int at = h * c.queries(b) + from * c.group();
    const State s = state.from(at, c.o_stride);
    c.kernels.attend({.q = w.q + at * dim,
                      .q_stride = dim,
                      .rows = (to - from) * c.group(),
                      .dim = static_cast<int>(dim),
                      .keys = span.keys,
                      .scale = c.call.shape.scale,
                      .begin = w.begin + int64_t{from} * c.group(),
                      .end = w.end + int64_t{from} * c.group(),
                      .kt = w.kt,
                      .v = w.v,
                      .max = s.max,
                      .sum = s.sum,
                      .o = s.o,
                      .o_stride = c.o_stride,
                      .scores = w.scores});
  }
}

}  // namespace skiff::cpu
