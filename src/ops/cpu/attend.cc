// Attention in three levels. A block of kKvBlock positions is one step of the online softmax; a
// piece of kPiece positions starts from nothing; a row's pieces are merged in order. Blocks and
// pieces are cut at absolute positions, so the arithmetic behind a row depends on its position
// alone. Pieces are what several threads can share when one sequence is long (Dao et al. 2023,
// "Flash-Decoding for long-context inference").
#include <algorithm>
#include <vector>

#include "base/round_up.h"
#include "ops/cpu/attend_context.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"

namespace skiff::cpu {
namespace {

constexpr int64_t kPiece = int64_t{8} * kKvBlock;
// Query vectors, over the heads of a group, that share loaded keys: more in tiles, which multiply
// faster than keys are read, if their values are not too wide for the cache.
constexpr int kQueries = 96, kTileQueries = 256, kWidestOfTiles = 128;
int queries_at_once(const AttendShape& shape, bool tiles) {
  return tiles && shape.v_dim <= kWidestOfTiles ? kTileQueries : kQueries;
}
constexpr int64_t kTasksPerThread = 4;

std::vector<RowBlock> row_blocks(const Context& c) {
  std::vector<RowBlock> out;
  const int32_t* start = c.batch.row_start.as<int32_t>();
  const int32_t step = std::max(1, queries_at_once(c.call.shape, c.tiles) / c.group());
  for (int s = 0; s < c.batch.num_seqs; ++s)
    for (int32_t r = start[s]; r < start[s + 1]; r += step) {
      const int32_t rows = std::min(step, start[s + 1] - r);
      const int64_t first = c.first_seen(r) / kPiece;
      out.push_back({s, r, rows, first, c.position(r + rows - 1) / kPiece + 1 - first});
    }
  return out;
}

void attend_piece(const Context& c, const RowBlock& b, const Heads& heads, int64_t piece,
                  const Workspace& w, const State& state) {
  state.reset(heads.count * c.queries(b), c.o_stride);
  const int64_t begin = std::max(piece * kPiece, c.first_seen(b.row) / kKvBlock * kKvBlock);
  const int64_t end = std::min((piece + 1) * kPiece, c.position(b.row + b.rows - 1) + 1);
  const auto step = c.tiles ? attend_tile_block : attend_block;
  for (int64_t p = begin; p < end; p += kKvBlock) step(c, b, heads, p, w, state);
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
  const int most = queries_at_once(c.call.shape, c.tiles);
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
    const int heads = std::clamp(most / c.queries(*b), 1, most_heads);
    for (int h = 0; h < c.call.shape.kv_heads; h += heads)
      for (int64_t p = 0; p < (by_piece ? b->pieces : 1); ++p)
        parts.push_back({&*b, {h, std::min(heads, c.call.shape.kv_heads - h)}, p});
  }
  return parts;
}

int64_t o_stride_of(const AttendShape& s) { return round_up(s.v_dim, 2 * kPanel); }
// Returns the most query vectors that one part has.
int most_queries(const AttendShape& s, bool tiles) {
  return std::max(queries_at_once(s, tiles), s.group());
}
// enough_parts() keeps all threads busy; parts_in_memory() bounds the parts whose states are in
// memory at once, unless the pieces of one row block are more.
int64_t enough_parts(int threads) { return kTasksPerThread * threads; }
int64_t parts_in_memory(int threads) { return 4 * enough_parts(threads); }

}  // namespace

AttendScratch attend_scratch(const AttendShape& shape, int threads, int max_context, bool tiles) {
  const int queries = most_queries(shape, tiles);
  const int64_t o_stride = o_stride_of(shape);
  const int64_t pieces = (std::max(1, max_context) - 1) / kPiece + 1;
  return {.workspace = Workspace::floats(shape.dim, o_stride, queries),
          .states = (parts_in_memory(threads) + pieces) * State::floats(queries, o_stride)};
}

void CpuOps::attend(const AttendCall& call, const RaggedBatch& batch, const KvLayer& kv) {
  const AttendShape& shape = call.shape;
  const Context c = {
      kernels_, call, batch, kv, o_stride_of(shape), attends_in_tiles(kernels_, call, kv)};
  const auto load = c.tiles ? load_tile_queries : load_queries;
  const std::vector<RowBlock> blocks = row_blocks(c);
  const int most = most_queries(shape, c.tiles);
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
      load(c, b, part.heads, w);
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
      load(c, *part.rows, part.heads, w);
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
