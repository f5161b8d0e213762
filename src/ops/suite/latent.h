// ops/suite/latent.h -- latent attention (Mla) for the op suite.
#pragma once
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

// The pages of latents: those of one kv head, without values.
inline Gqa cached(const Mla& spec) { return gqa(1, 1, spec.cached_dim()); }
inline KvLayer latents(const Paged& paged) {
  KvLayer layer = paged.kv;
  layer.v = {};
  return layer;
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
