// ops/suite/latent.h -- latent attention (Mla) for the op suite.
#pragma once
#include "ops/latent_row.h"
#include "ops/suite/attention.h"

namespace skiff::suite {

inline Mla mla(int heads, int kv_rank, int rope_dim, int nope_dim = 16, bool interleaved = true) {
  return {.heads = heads,
          .kv_rank = kv_rank,
          .nope_dim = nope_dim,
          .rope_dim = rope_dim,
          .v_dim = 12,
          .rope = {.dim = rope_dim, .interleaved = interleaved},
          .scale = 0.9f / std::sqrt(static_cast<float>(nope_dim + rope_dim))};
}

// The shape of DeepSeek-V2 and V3, which devices have fast kernels for.
inline Mla deepseek(int heads) { return mla(heads, 512, 64, 128); }

// One row each, at the edges of tiles (64 positions) and of pages, and of very different lengths.
inline const std::vector<Piece> kLatentDecode = {{0, 1},   {62, 1},  {63, 1},  {64, 1},   {130, 0},
                                                 {500, 1}, {127, 1}, {255, 1}, {1100, 1}, {0, 0}};
inline const std::vector<Piece> kLatentFewRows = {{0, 2},  {100, 3}, {700, 4},
                                                  {63, 1}, {62, 2},  {0, 1}};
inline const std::vector<Piece> kLatentChunks = {{0, 1},   {0, 90},  {400, 40},
                                                 {64, 64}, {63, 33}, {700, 1}};

// The pages of latents: those of one kv head, without values.
inline Gqa cached(const Mla& spec) { return gqa(1, 1, spec.cached_dim()); }
inline KvLayer latents(const Paged& paged) {
  KvLayer layer = paged.kv;
  layer.v = {};
  return layer;
}

// A cache of 8-bit rows (ops/latent_row.h) on the pages of `paged`, made from its values, which
// become those that the rows stand for. Pages lie `gap` bytes further apart than they are long.
inline KvLayer make_rows(Workspace& ws, const Paged& paged, const Mla& spec, int64_t gap = 0) {
  const LatentRow row = {spec.kv_rank, spec.rope_dim};
  KvLayer rows = latents(paged);
  const Tensor values = paged.kv.k;
  rows.format = {.dtype = DType::kF8E4M3};
  rows.k = ws.output(DType::kU8, {values.dim[0], int64_t{rows.page_size} * row.bytes()}, gap);
  rows.k.dim = {values.dim[0], rows.page_size, 1, row.bytes()};
  std::vector<float> x(static_cast<size_t>(spec.cached_dim()));
  for (int64_t page = 0; page < values.dim[0]; ++page)
    for (int64_t i = 0; i < rows.page_size; ++i) {
      const int64_t first = i * spec.cached_dim();
      // Groups differ in their largest magnitude, so that they have different scales.
      for (int d = 0; d < spec.cached_dim(); ++d)
        x[static_cast<size_t>(d)] = static_cast<float>(std::ldexp(
            at(values, page, first + d), d < spec.kv_rank ? static_cast<int>(i % 3) - d / 128 : 0));
      quantize_latent(row, x, latent_row(rows.k, page, i));
      dequantize_latent(row, latent_row(rows.k, page, i), x);
      for (int d = 0; d < spec.cached_dim(); ++d)
        put(values, page, first + d, static_cast<double>(x[static_cast<size_t>(d)]));
    }
  return rows;
}

// A product of x [tokens * heads, in], whose rows lie `gap` elements apart.
struct HeadsCase {
  int tokens, heads, out, in;
  int64_t gap = 0;
};

// A random stack, and in *met the values that it has once it is prepared.
inline Linear stack_of(Workspace& ws, Ops& ops, const HeadsCase& c, DType act, Tensor* met,
                       Buffer* owner) {
  const Tensor plain = ws.random(act, {c.heads, c.out, c.in});
  *met = ws.output(act, {c.heads, c.out, c.in});
  convert(*met, plain);
  return ops.prepare({.weight = plain, .experts = c.heads}, {act}, owner);
}

}  // namespace skiff::suite
