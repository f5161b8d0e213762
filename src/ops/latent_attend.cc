#include "ops/ops.h"

namespace skiff {

void Ops::latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                        const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                        Arena& arena) {
  const int64_t vectors = q.rows() * spec.heads;
  const size_t mark = arena.mark();
  const Tensor queries = arena.take(q.dtype, {vectors, spec.kv_rank});
  const Tensor seen = arena.take(q.dtype, {vectors, spec.kv_rank});
  const Tensor by_head = q.reshaped({vectors, spec.q_dim()});
  heads_linear(queries, by_head.col_range(0, spec.nope_dim), absorb);
  mla_attend(seen, queries, by_head.col_range(spec.nope_dim, spec.rope_dim), spec, batch, cache);
  heads_linear(values.reshaped({vectors, spec.v_dim}), seen, value);
  arena.rewind(mark);
}

}  // namespace skiff
