#include "model/decoder.h"

#include <algorithm>

namespace skiff::model {

Decoder::Decoder(const ModelSpec& spec, const ModelWeights& weights, Ops& ops, comm::Mesh& mesh,
                 DType act)
    : spec_(spec), weights_(weights), ops_(ops), mesh_(mesh), act_(act) {
  SKIFF_CHECK_EQ(weights.layers.size(), spec.layers.size());
}

Forward Decoder::forward(const RaggedBatch& batch, std::span<const KvLayer> kv, Arena& arena) {
  SKIFF_CHECK_EQ(kv.size(), spec_.layers.size());
  Tensor residual = arena.take(DType::kF32, {batch.num_tokens, spec_.hidden});
  Tensor x = arena.take(act_, {batch.num_tokens, spec_.hidden});
  const size_t mark = arena.mark();
  Delta delta;  // empty before the first layer
  // Adds the delta of the block before and frees its scratch: the next block reads only x.
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
  if (spec_.head == HeadKind::kNone) return {.hidden = x, .logits = {}};
  ops_.soon(weights_.head);

  Tensor last = arena.take(act_, {batch.out_rows.rows(), spec_.hidden});
  Tensor logits = arena.take(DType::kF32, {last.rows(), spec_.head_rows()});
  ops_.gather_rows(last, x, batch.out_rows);
  ops_.linear(logits, last, weights_.head);
  return {.hidden = x, .logits = logits};
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

// Bytes that the decoder itself takes from the arena for a block; its operations take more.
struct OwnBytes {
  const ModelSpec& spec;
  DType act;
  int64_t rows;

  size_t columns(int64_t n) const { return Arena::size_of(act, rows * n); }
  size_t dense(int64_t width) const { return columns(spec.hidden) + columns(width); }

  size_t operator()(const Gqa& m) const {
    const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim;
    return columns(q + 2 * kv) + columns(q) + columns(spec.hidden);
  }
  size_t operator()(const Dense& f) const { return dense(f.width); }
  size_t operator()(const Moe& f) const {
    return columns(spec.hidden) + Arena::size_of(DType::kF32, rows * f.router.experts) +
           (f.shared_width ? dense(f.shared_width) : 0);
  }
};

}  // namespace

size_t Decoder::arena_bytes(const ModelSpec& spec, DType act, int max_rows, int max_logit_rows,
                            const Ops& ops) {
  const auto floats = [](int64_t rows, int64_t cols) {
    return Arena::size_of(DType::kF32, rows * cols);
  };
  const OwnBytes own{spec, act, max_rows}, head{spec, act, max_logit_rows};
  size_t block = head.columns(spec.hidden) + floats(max_logit_rows, spec.head_rows());
  for (const Layer& layer : spec.layers) {
    block = std::max(block, std::visit(own, layer.mixer));
    block = std::max(
        block, std::visit(own, layer.ffn) + ops.arena_bytes(layer.ffn, spec.hidden, max_rows, act));
  }
  return floats(max_rows, spec.hidden) + own.columns(spec.hidden) + block;
}

}  // namespace skiff::model
