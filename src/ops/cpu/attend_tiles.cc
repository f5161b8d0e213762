// Attention to a block of positions in tiles.
#include <cstring>

#include "ops/cpu/attend_context.h"

namespace skiff::cpu {
namespace {

// Packs up to kQueryLanes queries of bf16 in the order of tiles.
class QueryPacker {
 public:
  QueryPacker(const Context& c, const RowBlock& b, uint16_t* rows)
      : c_(c), b_(b), width_(padded_dim(c.call.shape.dim)), rows_(rows) {}

  // Adds query `i` of a kv head, counted over rows and heads of the group.
  void add(int kv_head, int i) {
    uint16_t* to = rows_ + count_++ * width_;
    const uint16_t* end = to + width_;
    for (const HeadVectors& part : c_.call.q) {
      const std::byte* from =
          part.at(b_.row + i / c_.group(), kv_head * c_.group() + i % c_.group());
      std::memcpy(to, from, static_cast<size_t>(part.dim) * sizeof(uint16_t));
      to += part.dim;
    }
    std::fill(to, const_cast<uint16_t*>(end), uint16_t{0});
  }
  // Returns the words that it has written.
  int64_t pack(uint32_t* to) {
    std::fill(rows_ + count_ * width_, rows_ + kQueryLanes * width_, uint16_t{0});
    const uint32_t* rows[kQueryLanes];
    for (int i = 0; i < kQueryLanes; ++i)
      rows[i] = reinterpret_cast<const uint32_t*>(rows_ + i * width_);
    c_.kernels.pack_panel(to, rows, width_ / 2);
    count_ = 0;
    return width_ / 2 * kQueryLanes;
  }

 private:
  const Context& c_;
  const RowBlock& b_;
  int64_t width_, count_ = 0;
  uint16_t* rows_;
};

}  // namespace

// Latents stay in vectors, because rows of ops/latent_row.h promise the bits of rows of bf16.
bool attends_in_tiles(const Kernels& kernels, const AttendCall& call, const KvLayer& kv) {
  const bool latents = call.values.data == kv.k.data;
  return kernels.attend_tiles != nullptr && !latents && kv.k.dtype == DType::kBF16 &&
         std::ranges::all_of(call.q, [](const HeadVectors& q) { return q.dtype == DType::kBF16; });
}

void load_tile_queries(const Context& c, const RowBlock& b, const Heads& heads,
                       const Workspace& w) {
  const int queries = c.queries(b), together = heads_in_lanes(queries);
  QueryPacker packer(c, b, reinterpret_cast<uint16_t*>(w.kt));
  auto* to = reinterpret_cast<uint32_t*>(w.q);
  for (int h = 0; h < heads.count; h += together)
    for (int first = 0; first < queries; first += kQueryLanes) {
      for (int n = h; n < std::min(h + together, heads.count); ++n)
        for (int i = first; i < std::min(first + kQueryLanes, queries); ++i)
          packer.add(heads.first + n, i);
      to += packer.pack(to);
    }
}

void attend_tile_block(const Context& c, const RowBlock& b, const Heads& heads, int64_t first,
                       const Workspace& w, const State& state) {
  const int64_t end = first + kKvBlock, limit = c.position(b.row + b.rows - 1) + 1;
  const auto [from, to, keys] = rows_that_see(c, b, first, w);
  if (from == to) return;
  const AttendShape& shape = c.call.shape;
  const Tensor& values = c.call.values;
  const auto ahead = static_cast<int>(std::clamp<int64_t>(limit - end, 0, kKvBlock));
  Found k, v, next_k;
  find_rows(c, b.seq, c.kv.k, c.kv.k_scale, heads.first, first, keys, k);
  find_rows(c, b.seq, values, c.kv.v_scale, heads.first, first, keys, v);
  find_rows(c, b.seq, c.kv.k, c.kv.k_scale, heads.first, end, ahead, next_k);
  const auto step = [](const Tensor& cache) {
    return cache.dim[3] * static_cast<int64_t>(sizeof(uint16_t));
  };
  c.kernels.attend_tiles({.k = k.row,
                          .v = v.row,
                          .next_k = next_k.row,
                          .k_step = step(c.kv.k),
                          .v_step = step(values),
                          .keys = keys,
                          .ahead = ahead,
                          .dim = shape.dim,
                          .v_dim = shape.v_dim,
                          .scale = shape.scale,
                          .heads = heads.count,
                          .queries = c.queries(b),
                          .from = from * c.group(),
                          .to = to * c.group(),
                          .q = reinterpret_cast<const uint32_t*>(w.q),
                          .begin = w.begin,
                          .end = w.end,
                          .max = state.max,
                          .sum = state.sum,
                          .o = state.o,
                          .o_stride = c.o_stride,
                          .keys_at = reinterpret_cast<uint16_t*>(w.kt),
                          .values_at = reinterpret_cast<uint16_t*>(w.v),
                          .sums_at = w.scores,
                          .sums_stride = Workspace::tile_sums_stride(c.o_stride)});
}

}  // namespace skiff::cpu
