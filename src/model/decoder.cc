#include "model/decoder.h"

#include <algorithm>

namespace skiff {

Decoder::Decoder(const ModelSpec& spec, const ModelWeights& weights, Ops& ops, Mesh& mesh,
                 DType act)
    : spec_(spec), weights_(weights), ops_(ops), mesh_(mesh), act_(act) {
  SKIFF_CHECK_EQ(weights.layers.size(), spec.layers.size());
}

Tensor Decoder::forward(const RaggedBatch& batch, std::span<const KvLayer> kv, Arena& arena) {
  SKIFF_CHECK_EQ(kv.size(), spec_.layers.size());
  Tensor residual = arena.take(DType::kF32, {batch.num_tokens, spec_.hidden});
  Tensor x = arena.take(act_, {batch.num_tokens, spec_.hidden});
  const size_t mark = arena.mark();
  Delta delta;  // empty ahead of the first layer
  // Adds what the last block left and frees its scratch: x is all that the next block reads.
  const auto next = [&](const Norm& norm) {
    settle(x, residual, delta, norm);
    arena.rewind(mark);
  };

  ops_.embed(residual, weights_.embed, batch.tokens);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    next(weights_.layers[i].mixer_norm);
    delta = mix(static_cast<int>(i), x, batch, kv[i], arena);
    next(weights_.layers[i].ffn_norm);
    delta = ffn(static_cast<int>(i), x, arena);
  }
  next(weights_.norm);
  ops_.soon(weights_.head);

  Tensor last = arena.take(act_, {batch.out_rows.rows(), spec_.hidden});
  Tensor logits = arena.take(DType::kF32, {last.rows(), spec_.vocab});
  ops_.gather_rows(last, x, batch.out_rows);
  ops_.linear(logits, last, weights_.head);
  return logits;
}

void Decoder::settle(Tensor x, Tensor residual, const Delta& delta, const Norm& norm) {
  if (delta.owed) {
    delta.owed->reduce_add_norm(x, residual, delta.rows, norm, ops_);
  } else {
    ops_.add_norm(x, residual, delta.rows, norm);
  }
}

Delta Decoder::mix(int layer, Tensor x, const RaggedBatch& batch, const KvLayer& kv, Arena& arena) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const auto mix_kind = [&]<class Kind>(const Kind& m) {
    return mix(m, std::get<Weights<Kind>>(w.mixer), x, batch, kv, arena);
  };
  return std::visit(mix_kind, spec_.layers[static_cast<size_t>(layer)].mixer);
}

Delta Decoder::mix(const Gqa& m, const GqaWeights& w, Tensor x, const RaggedBatch& batch,
                   const KvLayer& kv, Arena& arena) {
  const int64_t q_cols = int64_t{m.heads} * m.head_dim;
  Tensor qkv = arena.take(act_, {x.rows(), q_cols + 2 * int64_t{m.kv_heads} * m.head_dim});
  Tensor seen = arena.take(act_, {x.rows(), q_cols});
  Tensor out = arena.take(act_, {x.rows(), spec_.hidden});
  ops_.soon(w.out);
  ops_.gqa_project(qkv, x, w.qkv, w.q_norm, w.k_norm, m, batch, kv);
  ops_.gqa_attend(seen, qkv.col_range(0, q_cols), m, batch, kv);
  ops_.linear(out, seen, w.out);
  return {out, mesh_.tp.get()};
}

Delta Decoder::ffn(int layer, Tensor x, Arena& arena) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const auto ffn_kind = [&]<class Kind>(const Kind& f) {
    return ffn(f, std::get<Weights<Kind>>(w.ffn), x, arena);
  };
  return std::visit(ffn_kind, spec_.layers[static_cast<size_t>(layer)].ffn);
}

Delta Decoder::ffn(const Dense& f, const DenseWeights& w, Tensor x, Arena& arena) {
  return {dense(w, f.width, f.act, x, arena), mesh_.tp.get()};
}

Delta Decoder::ffn(const Moe& f, const MoeWeights& w, Tensor x, Arena& arena) {
  Tensor out = arena.take(act_, {x.rows(), spec_.hidden});
  Tensor score = arena.take(DType::kF32, {x.rows(), f.router.experts});
  ops_.linear(score, x, w.router);
  const Routing routing = ops_.route(score, w.router_bias, f.router, arena);
  ops_.experts(out, x, routing, w.gate_up, w.down, f.act, arena);
  if (f.shared_width) ops_.add(out, dense(w.shared, f.shared_width, f.act, x, arena));
  return {out, mesh_.tp.get()};
}

Tensor Decoder::dense(const DenseWeights& w, int width, Act act, Tensor x, Arena& arena) {
  Tensor out = arena.take(act_, {x.rows(), spec_.hidden});
  const size_t mark = arena.mark();
  Tensor mid = arena.take(act_, {x.rows(), width});
  ops_.gated_linear(mid, x, w.gate_up, act, arena);
  ops_.linear(out, mid, w.down);
  arena.rewind(mark);
  return out;
}

namespace {

// Sums what a block takes; each tensor starts on a cache line.
struct Need {
  DType act;
  int64_t rows;
  int64_t expert_rows = 0;
  size_t bytes = 0;

  void add(DType dtype, int64_t n, int64_t cols) {
    const size_t raw = static_cast<size_t>(n) * static_cast<size_t>(cols) * skiff::bytes(dtype);
    bytes += (raw + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
  }
  void add(int64_t cols) { add(act, rows, cols); }
};

void count(Need& need, const ModelSpec& spec, const Gqa& m) {
  const int64_t q = int64_t{m.heads} * m.head_dim;
  need.add(q + 2 * int64_t{m.kv_heads} * m.head_dim);
  need.add(q);
  need.add(spec.hidden);
}

void count_dense(Need& need, const ModelSpec& spec, int width) {
  need.add(spec.hidden);
  need.add(2 * int64_t{width});
  need.add(width);
}

void count(Need& need, const ModelSpec& spec, const Dense& f) { count_dense(need, spec, f.width); }

void count(Need& need, const ModelSpec& spec, const Moe& f) {
  const int64_t copies = need.rows * f.router.per_token();
  need.add(spec.hidden);
  need.add(DType::kF32, need.rows, f.router.experts);
  for (int i = 0; i < 3; ++i) need.add(DType::kI32, copies, 1);
  need.add(DType::kI32, f.router.total() + 1, 1);
  const int64_t inner = std::min(need.rows, need.expert_rows) * f.router.per_token();
  need.add(DType::kI32, inner, 2);
  need.add(DType::kI32, f.router.total(), 8);
  need.add(need.act, inner, spec.hidden);
  need.add(DType::kF32, inner, 2 * int64_t{f.width});
  need.add(need.act, inner, f.width);
  need.add(DType::kF32, inner, spec.hidden);
  if (f.shared_width) count_dense(need, spec, f.shared_width);
}

}  // namespace

size_t Decoder::arena_bytes(const ModelSpec& spec, DType act, int max_rows, int max_logit_rows,
                            int64_t expert_rows) {
  Need always{act, max_rows};
  always.add(DType::kF32, max_rows, spec.hidden);
  always.add(spec.hidden);
  Need head{act, max_logit_rows};
  head.add(spec.hidden);
  head.add(DType::kF32, max_logit_rows, spec.vocab);
  size_t block = head.bytes;
  for (const Layer& layer : spec.layers) {
    const auto widest = [&](const auto& kind) {
      Need need{act, max_rows, expert_rows};
      count(need, spec, kind);
      block = std::max(block, need.bytes);
    };
    std::visit(widest, layer.mixer);
    std::visit(widest, layer.ffn);
  }
  return always.bytes + block;
}

}  // namespace skiff
