// Attention in three levels. A block of kKvBlock positions is one step of the online softmax; a
// piece of kPiece positions starts from nothing; a row's pieces are merged in order. Blocks and
// pieces are cut at absolute positions, so the arithmetic behind a row depends on its position
// alone. Pieces are what several threads can share when one sequence is long (Dao et al. 2023,
// "Flash-Decoding for long-context inference").
#include <algorithm>
#include <vector>

#include "base/round_up.h"
#include "ops/cpu/attend.h"
#include "ops/cpu/attend_state.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/paging.h"
#include "ops/cpu/rows.h"
#include "ops/kv_quant.h"
#include "ops/latent_row.h"

namespace skiff::cpu {
namespace {

constexpr int64_t kPiece = int64_t{8} * kKvBlock;
constexpr int kQueries = 96;  // query vectors, over the heads of a group, that share loaded keys
constexpr int64_t kTasksPerThread = 4;

// Rows of one sequence at rising positions, and the pieces that they see.
struct RowBlock {
  int seq;
  int32_t row, rows;
  int64_t first_piece, pieces;
};

// Kv heads [first, first + count) that one task works on. A task with few rows takes many heads,
// so that it reads whole pages of the cache and not one head's stripe through all of them.
struct Heads {
  int first, count;
};

struct Context {
  const Kernels& kernels;
  const AttendCall& call;
  const RaggedBatch& batch;
  const KvLayer& kv;
  int64_t o_stride;

  int64_t position(int64_t row) const { return batch.positions.as<int32_t>()[row]; }
  int64_t first_seen(int64_t row) const {
    const int window = call.shape.window;
    return window > 0 ? std::max<int64_t>(0, position(row) - window + 1) : 0;
  }
  int group() const { return call.shape.group(); }
  int queries(const RowBlock& b) const { return b.rows * group(); }
};

std::vector<RowBlock> row_blocks(const Context& c) {
  std::vector<RowBlock> out;
  const int32_t* start = c.batch.row_start.as<int32_t>();
  const int32_t step = std::max(1, kQueries / c.group());
  for (int s = 0; s < c.batch.num_seqs; ++s)
    for (int32_t r = start[s]; r < start[s + 1]; r += step) {
      const int32_t rows = std::min(step, start[s + 1] - r);
      const int64_t first = c.first_seen(r) / kPiece;
      out.push_back({s, r, rows, first, c.position(r + rows - 1) / kPiece + 1 - first});
    }
  return out;
}

// Loads the queries as [heads][rows * group][dim].
void load_queries(const Context& c, const RowBlock& b, const Heads& heads, float* to) {
  const int first = heads.first * c.group(), group = c.group();
  for (int h = first; h < first + heads.count * group; h += group)
    for (int32_t r = b.row; r < b.row + b.rows; ++r)
      for (int i = h; i < h + group; ++i)
        for (const HeadVectors& part : c.call.q) {
          copy_row(c.kernels, to, DType::kF32, part.at(r, i), part.dtype, part.dim);
          to += part.dim;
        }
}

// Where the positions of a span begin, and their scales if they have any.
struct Found {
  const void* row[kKvBlock];
  const uint16_t* scale[kKvBlock];
};

// Finds positions [first, first + count) of one kv head in `cache`, whose scales are `scales`.
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

// One step of the online softmax for the rows of `b` that see positions [first, first + 64).
void attend_block(const Context& c, const RowBlock& b, const Heads& heads, int64_t first,
                  const Workspace& w, const State& state) {
  const int64_t end = first + kKvBlock, limit = c.position(b.row + b.rows - 1) + 1;
  int32_t from = 0, to = b.rows;
  while (from < to && c.position(b.row + from) < first) ++from;
  while (to > from && c.first_seen(b.row + to - 1) >= end) --to;
  if (from == to) return;
  for (int32_t i = from * c.group(); i < to * c.group(); ++i) {
    const int64_t row = b.row + i / c.group();
    w.begin[i] = static_cast<int32_t>(std::max(c.first_seen(row), first) - first);
    w.end[i] = static_cast<int32_t>(std::min(c.position(row) + 1, end) - first);
  }
  const int64_t dim = c.call.shape.dim;
  KvSpan span = {heads.first, first,
                 static_cast<int>(std::min(c.position(b.row + to - 1) + 1, end) - first)};
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

void attend_piece(const Context& c, const RowBlock& b, const Heads& heads, int64_t piece,
                  const Workspace& w, const State& state) {
  state.reset(heads.count * c.queries(b), c.o_stride);
  const int64_t begin = std::max(piece * kPiece, c.first_seen(b.row) / kKvBlock * kKvBlock);
  const int64_t end = std::min((piece + 1) * kPiece, c.position(b.row + b.rows - 1) + 1);
  for (int64_t p = begin; p < end; p += kKvBlock) attend_block(c, b, heads, p, w, state);
}

void write(const Context& c, const RowBlock& b, const Heads& heads, const State& state) {
  const HeadVectors& out = c.call.out;
  const int queries = c.queries(b);
  for (int i = 0; i < heads.count * queries; ++i) {
    float* o = state.o + i * c.o_stride;
    for (int64_t d = 0; d < out.dim; ++d) o[d] /= state.sum[i];
    const int kv_head = heads.first + i / queries, in_head = i % queries;
    std::byte* to = out.at(b.row + in_head / c.group(), kv_head * c.group() + in_head % c.group());
    copy_row(c.kernels, to, out.dtype, o, DType::kF32, out.dim);
  }
}

// The work of one task: some heads of some rows, and one or all of their pieces.
struct Part {
  const RowBlock* rows;
  Heads heads;
  int64_t piece;  // the first piece, relative to rows->first_piece

  int queries(const Context& c) const { return heads.count * c.queries(*rows); }
};

// The last rows of a prompt come first, because they see the most positions. `most_heads` bounds a
// part's heads.
std::vector<Part> cut(const Context& c, const std::vector<RowBlock>& blocks, bool by_piece,
                      int most_heads) {
  std::vector<Part> parts;
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
    const int heads = std::clamp(kQueries / c.queries(*b), 1, most_heads);
    for (int h = 0; h < c.call.shape.kv_heads; h += heads)
      for (int64_t p = 0; p < (by_piece ? b->pieces : 1); ++p)
        parts.push_back({&*b, {h, std::min(heads, c.call.shape.kv_heads - h)}, p});
  }
  return parts;
}

int64_t o_stride_of(const AttendShape& s) { return round_up(s.v_dim, 2 * kPanel); }
// Returns the most query vectors that one part has.
int most_queries(const AttendShape& s) { return std::max(kQueries, s.group()); }
// enough_parts() keeps all threads busy; parts_in_memory() bounds the parts whose states are in
// memory at once, unless the pieces of one row block are more.
int64_t enough_parts(int threads) { return kTasksPerThread * threads; }
int64_t parts_in_memory(int threads) { return 4 * enough_parts(threads); }

}  // namespace

AttendScratch attend_scratch(const AttendShape& shape, int threads, int max_context) {
  const int64_t o_stride = o_stride_of(shape);
  const int64_t pieces = (std::max(1, max_context) - 1) / kPiece + 1;
  return {
      .workspace = Workspace::floats(shape.dim, o_stride, most_queries(shape)),
      .states = (parts_in_memory(threads) + pieces) * State::floats(most_queries(shape), o_stride)};
}

void CpuOps::attend(const AttendCall& call, const RaggedBatch& batch, const KvLayer& kv) {
  const AttendShape& shape = call.shape;
  const Context c = {kernels_, call, batch, kv, o_stride_of(shape)};
  const std::vector<RowBlock> blocks = row_blocks(c);
  const int most = most_queries(shape);
  const auto workspace = [&](int thread) {
    return Workspace::take(thread_scratch_[static_cast<size_t>(thread)], shape.dim, c.o_stride,
                           most);
  };
  const auto enough = static_cast<size_t>(enough_parts(pool_.threads()));

  std::vector<Part> parts = cut(c, blocks, false, shape.kv_heads);
  if (parts.size() >= enough) {
    pool_.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t task, int thread) {
      const Part& part = parts[static_cast<size_t>(task)];
      const RowBlock& b = *part.rows;
      const int n = part.queries(c);
      const Workspace w = workspace(thread);
      const State running = State::in(w.running, n, c.o_stride);
      const State piece = State::in(w.piece, n, c.o_stride);
      load_queries(c, b, part.heads, w.q);
      running.reset(n, c.o_stride);
      for (int64_t p = 0; p < b.pieces; ++p) {
        attend_piece(c, b, part.heads, b.first_piece + p, w, piece);
        merge(running, piece, n, c.o_stride);
      }
      write(c, b, part.heads, running);
    });
    return;
  }

  // There are too few parts for all threads, so every piece becomes a task of its own, with fewer
  // heads if necessary. They are computed in waves, so that the states of pieces need little
  // memory; a row block's pieces stay in one wave.
  int most_heads = shape.kv_heads;
  while (parts = cut(c, blocks, true, most_heads), parts.size() < enough && most_heads > 1)
    most_heads = (most_heads + 1) / 2;
  const auto wave = static_cast<size_t>(parts_in_memory(pool_.threads()));
  const int64_t size = State::floats(most, c.o_stride);
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    while (end < parts.size() && end - begin < wave)
      end += static_cast<size_t>(parts[end].rows->pieces);
    float* memory = states_.take<float>(static_cast<int64_t>(end - begin + 1) * size);
    const auto state = [&](size_t i, int n) {
      return State::in(memory + static_cast<int64_t>(i - begin) * size, n, c.o_stride);
    };
    pool_.parallel_for(static_cast<int64_t>(end - begin), [&](int64_t task, int thread) {
      const size_t i = begin + static_cast<size_t>(task);
      const Part& part = parts[i];
      const Workspace w = workspace(thread);
      load_queries(c, *part.rows, part.heads, w.q);
      attend_piece(c, *part.rows, part.heads, part.rows->first_piece + part.piece, w,
                   state(i, part.queries(c)));
    });
    for (size_t i = begin; i < end;) {
      const Part& part = parts[i];
      const int n = part.queries(c);
      const State running = state(end, n);
      running.reset(n, c.o_stride);
      for (const size_t last = i + static_cast<size_t>(part.rows->pieces); i < last; ++i)
        merge(running, state(i, n), n, c.o_stride);
      write(c, *part.rows, part.heads, running);
    }
  }
}

void CpuOps::gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                        const KvLayer& kv) {
  SKIFF_CHECK_EQ(q.cols(), int64_t{spec.heads} * spec.head_dim);
  SKIFF_CHECK_EQ(out.cols(), q.cols());
  SKIFF_CHECK(kv.k.dtype == kv.v.dtype);
  const HeadVectors queries = heads_of(q, spec.head_dim);
  attend({shape_of(spec), {&queries, 1}, heads_of(out, spec.head_dim), kv.v}, batch, kv);
}

// All heads share the cached rows, whose first elements are the values, too.
void CpuOps::mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                        const RaggedBatch& batch, const KvLayer& cache) {
  SKIFF_CHECK(q_latent.cols() == spec.kv_rank && q_rope.cols() == spec.rope_dim, "{} and {}",
              q_latent.cols(), q_rope.cols());
  SKIFF_CHECK(cache.format.quantized() == (cache.k.dtype == DType::kU8), "a latent cache of {}",
              skiff::name(cache.k.dtype));
  const HeadVectors queries[] = {rows_as_heads(q_latent, spec.heads),
                                 rows_as_heads(q_rope, spec.heads)};
  attend({shape_of(spec), queries, rows_as_heads(out, spec.heads), cache.k, spec.rope_dim}, batch,
         cache);
}

}  // namespace skiff::cpu
