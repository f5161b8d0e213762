#include "model/decoder.h"

#include <algorithm>

namespace skiff::model {

Decoder::Decoder(const ModelSpec& spec, const ModelWeights& weights, Ops& ops, comm::Mesh& mesh,
                 DType act)
    : spec_(spec), weights_(weights), ops_(ops), mesh_(mesh), act_(act) {
  SKIFF_CHECK_EQ(weights.layers.size(), spec.layers.size());
}

Forward Decoder::forward(const RaggedBatch& batch, std::span<const KvLayer> kv, Arena& arena,
                         Tensor hidden) {
  SKIFF_CHECK_EQ(kv.size(), spec_.layers.size());
  Stream stream = begin(batch, arena, hidden);
  for (size_t i = 0; i < kv.size(); ++i) layer(static_cast<int>(i), stream, batch, kv[i], arena);
  Forward out = end(stream, arena);
  if (spec_.head == HeadKind::kNone) return out;
  ops_.soon(weights_.head);

  Tensor last = arena.take(act_, {batch.out_rows.rows(), spec_.hidden});
  out.logits = arena.take(DType::kF32, {last.rows(), spec_.head_rows()});
  ops_.gather_rows(last, stream.x, batch.out_rows);
  if (spec_.head == HeadKind::kClasses)
    classify(out.logits, last, arena);
  else
    score(out.logits, last);
  return out;
}

void Decoder::fill(const RaggedBatch& batch, std::span<const KvLayer> kv, Arena& arena,
                   Tensor hidden) {
  SKIFF_CHECK_EQ(kv.size(), spec_.layers.size());
  Stream stream = begin(batch, arena, hidden);
  const size_t last = kv.size() - 1;
  for (size_t i = 0; i < last; ++i) layer(static_cast<int>(i), stream, batch, kv[i], arena);
  const Tensor x = enter(last, stream, batch, arena);
  store(static_cast<int>(last), x, batch, kv[last], arena);
}

void Decoder::combine(Tensor out, Tensor taps) { ops_.linear(out, taps, weights_.join); }

Decoder::Stream Decoder::begin(const RaggedBatch& batch, Arena& arena, Tensor hidden) {
  Stream out{.residual = arena.take(DType::kF32, {batch.num_tokens, spec_.hidden}),
             .x = arena.take(act_, {batch.num_tokens, spec_.hidden}),
             .taps = {},
             .mark = arena.mark(),
             .delta = {}};
  if (const int64_t taps = std::ssize(spec_.taps); taps > 0) {
    out.taps = arena.take(act_, {batch.num_tokens, taps * spec_.hidden});
    out.mark = arena.mark();
  }
  if (spec_.joins)
    join(out.residual, batch.tokens, hidden, arena);
  else
    ops_.embed(out.residual, weights_.embed, batch.tokens);
  return out;
}

// Adds the delta of the block before and frees its scratch: the next block reads only x.
void Decoder::next(Stream& stream, const Norm& norm, Arena& arena) {
  settle(stream.x, stream.residual, stream.delta, norm);
  arena.rewind(stream.mark);
}

void Decoder::layer(int layer, Stream& stream, const RaggedBatch& batch, const KvLayer& kv,
                    Arena& arena) {
  const Tensor x = enter(static_cast<size_t>(layer), stream, batch, arena);
  stream.delta = mix(layer, x, batch, kv, arena);
  next(stream, weights_.layers[static_cast<size_t>(layer)].ffn_norm, arena);
  stream.delta = ffn(layer, stream.x, arena);
}

// Returns the input of a layer's mixer.
Tensor Decoder::enter(size_t layer, Stream& stream, const RaggedBatch& batch, Arena& arena) {
  const bool joined = spec_.joins && layer == 0;
  if (joined && spec_.join == ModelSpec::kBeside)
    return beside(stream.residual, batch.tokens, arena);
  if (joined && spec_.join == ModelSpec::kPlain) {
    ops_.copy(stream.x, stream.residual);
    arena.rewind(stream.mark);
    return stream.x;
  }
  next(stream, weights_.layers[layer].mixer_norm, arena);
  tap(layer, stream);
  return stream.x;
}

// Adds the last delta; stream.x is what the head takes. EAGLE's modules hand on the residual.
Forward Decoder::end(Stream& stream, Arena& arena) {
  const bool normed = !spec_.joins || spec_.join != ModelSpec::kPlain;
  // Where there is no last norm, another one serves to add, and what it gives is overwritten.
  next(stream, normed ? weights_.norm : weights_.layers.back().ffn_norm, arena);
  tap(spec_.layers.size(), stream);
  if (!normed) ops_.copy(stream.x, stream.residual);
  if (!spec_.joins || spec_.join != ModelSpec::kBeside)
    return {.hidden = stream.x, .logits = {}, .taps = stream.taps};
  const Tensor carried = arena.take(act_, {stream.x.rows(), spec_.hidden});
  ops_.copy(carried, stream.residual);
  return {.hidden = carried, .logits = {}};
}

// Shows the residual before a layer to a module.
void Decoder::tap(size_t layer, const Stream& stream) {
  for (size_t i = 0; i < spec_.taps.size(); ++i)
    if (static_cast<size_t>(spec_.taps[i]) == layer)
      ops_.copy(stream.taps.col_range(static_cast<int64_t>(i) * spec_.hidden, spec_.hidden),
                stream.residual);
}

// Every rank scores all classes.
void Decoder::classify(Tensor scores, Tensor last, Arena& arena) {
  if (!spec_.score_width) return ops_.linear(scores, last, weights_.head);
  const Tensor inner = arena.take(DType::kF32, {last.rows(), spec_.score_width});
  ops_.linear(inner, last, weights_.score_inner);
  ops_.relu(inner);
  ops_.linear(scores, inner, weights_.head);
}

// Each rank has a part of the vocabulary, and in the end all logits.
void Decoder::score(Tensor logits, Tensor last) {
  comm::Communicator& group = *mesh_.tp;
  const int64_t part = logits.cols() / group.size();
  const Tensor mine = logits.col_range(group.rank() * part, part);
  ops_.linear(mine, last, weights_.head);
  group.all_gather(logits, mine, ops_);
}

// Begins the residual of a module. The caller rewinds the arena.
void Decoder::join(Tensor residual, Tensor tokens, Tensor hidden, Arena& arena) {
  SKIFF_CHECK_EQ(hidden.rows(), residual.rows());
  if (spec_.join == ModelSpec::kBeside)
    ops_.copy(residual, hidden);
  else
    project(residual, tokens, hidden, arena);
}

// A projection of the token's embedding and of the hidden row, perhaps each behind a norm.
void Decoder::project(Tensor residual, Tensor tokens, Tensor hidden, Arena& arena) {
  const int64_t width = spec_.hidden;
  Tensor both = arena.take(act_, {residual.rows(), 2 * width});
  const Tensor token = both.col_range(0, width), row = both.col_range(width, width);
  ops_.embed(residual, weights_.embed, tokens);
  if (spec_.join == ModelSpec::kPlain) {
    ops_.copy(token, residual);
    ops_.copy(row, hidden);
  } else {
    ops_.add_norm(token, residual, {}, weights_.token_norm);
    ops_.copy(residual, hidden);
    ops_.add_norm(row, residual, {}, weights_.hidden_norm);
  }
  ops_.linear(residual, both, weights_.join);
}

// Returns the embedding beside the hidden row, which is the residual, each behind a norm.
Tensor Decoder::beside(Tensor residual, Tensor tokens, Arena& arena) {
  const int64_t width = spec_.hidden;
  Tensor both = arena.take(act_, {residual.rows(), 2 * width});
  const size_t mark = arena.mark();
  Tensor token = arena.take(DType::kF32, {residual.rows(), width});
  ops_.embed(token, weights_.embed, tokens);
  ops_.add_norm(both.col_range(0, width), token, {}, weights_.token_norm);
  ops_.add_norm(both.col_range(width, width), residual, {}, weights_.hidden_norm);
  arena.rewind(mark);
  return both;
}

void Decoder::settle(Tensor x, Tensor residual, const Delta& delta, const Norm& norm) {
  if (delta.owed) {
    const bool only_sums = spec_.taps.empty() && !spec_.joins;
    delta.owed->reduce_add_norm(x, residual, delta.rows, norm,
                                only_sums ? comm::ResidualUse::kSums : comm::ResidualUse::kAny,
                                ops_);
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

Tensor Decoder::store(int layer, Tensor x, const RaggedBatch& batch, const KvLayer& kv,
                      Arena& arena) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const auto store_kind = [&]<class Kind>(const Kind& m) {
    return store(m, std::get<Weights<Kind>>(w.mixer), x, batch, kv, arena);
  };
  return std::visit(store_kind, spec_.layers[static_cast<size_t>(layer)].mixer);
}

Tensor Decoder::store(const Gqa& m, const GqaWeights& w, Tensor x, const RaggedBatch& batch,
                      const KvLayer& kv, Arena& arena) {
  const int64_t cols = (int64_t{m.heads} + 2 * int64_t{m.kv_heads}) * m.head_dim;
  const Tensor qkv = arena.take(act_, {x.rows(), cols});
  ops_.gqa_project(qkv, x, w.qkv, w.q_norm, w.k_norm, m, batch, kv);
  return qkv;
}

Delta Decoder::mix(const Gqa& m, const GqaWeights& w, Tensor x, const RaggedBatch& batch,
                   const KvLayer& kv, Arena& arena) {
  const int64_t q_cols = int64_t{m.heads} * m.head_dim;
  Tensor seen = arena.take(act_, {x.rows(), q_cols});
  Tensor out = arena.take(act_, {x.rows(), spec_.hidden});
  ops_.soon(w.out);
  const Tensor qkv = store(m, w, x, batch, kv, arena);
  ops_.gqa_attend(seen, qkv.col_range(0, q_cols), m, batch, kv);
  ops_.linear(out, seen, w.out);
  return {out, mesh_.tp.get()};
}

Tensor Decoder::store(const Mla& m, const MlaWeights& w, Tensor x, const RaggedBatch& batch,
                      const KvLayer& kv, Arena& arena) {
  const int64_t rows = x.rows();
  Tensor latent = arena.take(DType::kF32, {rows, m.q_rank + m.cached_dim()});
  Tensor q = arena.take(act_, {rows, int64_t{m.heads} * m.q_dim()});
  Tensor q_input = x;
  ops_.linear(latent, x, w.latent);
  if (m.q_rank > 0) {
    q_input = arena.take(act_, {rows, m.q_rank});
    ops_.add_norm(q_input, latent.col_range(0, m.q_rank), {}, w.q_norm);
  }
  ops_.linear(q, q_input, w.q);
  ops_.mla_store(q, latent.col_range(m.q_rank, m.cached_dim()), w.kv_norm, m, batch, kv);
  return q;
}

Delta Decoder::mix(const Mla& m, const MlaWeights& w, Tensor x, const RaggedBatch& batch,
                   const KvLayer& kv, Arena& arena) {
  Tensor values = arena.take(act_, {x.rows(), int64_t{m.heads} * m.v_dim});
  Tensor out = arena.take(act_, {x.rows(), spec_.hidden});
  const Tensor q = store(m, w, x, batch, kv, arena);
  ops_.latent_attend(values, q, w.absorb, w.value, m, batch, kv, arena);
  ops_.linear(out, values, w.out);
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

// Every rank routes the rows of all that share the experts with it: the router costs less than
// another exchange of what it says. What its shared expert adds is of its own rows alone. Its two
// products go aside, since nothing but the last sum needs them; they alternate with the router's
// operations, because on a device each pair of these may run at the same time, too. Experts that a
// replica has for itself, as those of a module that drafts, meet its own rows alone, whatever group
// it belongs to.
Delta Decoder::ffn(const Moe& f, const MoeWeights& w, Tensor x, Arena& arena) {
  comm::RowExchange& sharers = f.sharers > 1 ? *mesh_.experts : *alone_;
  Tensor middle, shared;
  if (f.shared_width) {
    shared = arena.take(act_, {x.rows(), spec_.hidden});
    middle = arena.take(act_, {x.rows(), f.shared_width});
    ops_.begin_aside();
    ops_.gated_linear(middle, x, w.shared.gate_up, f.act, arena);
    ops_.end_aside();
  }
  const Tensor rows = sharers.dispatch(x, arena, ops_);
  Tensor parts = arena.take(act_, {rows.rows(), spec_.hidden});
  Tensor score = arena.take(DType::kF32, {rows.rows(), f.router.experts});
  ops_.linear(score, rows, w.router);
  if (shared) {
    ops_.begin_aside();
    ops_.linear(shared, middle, w.shared.down);
    ops_.end_aside();
  }
  const Routing routing = ops_.route(score, w.router_bias, f.router, arena);
  ops_.experts(parts, rows, routing, w.gate_up, w.down, f.act, arena);
  const Tensor out = sharers.combine(parts, x.rows(), arena, ops_);
  ops_.join();
  if (shared) ops_.add(out, shared);
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
  size_t operator()(const Mla& m) const {
    const int64_t heads = m.heads;
    return Arena::size_of(DType::kF32, rows * (m.q_rank + m.cached_dim())) +
           columns(heads * m.q_dim()) + 2 * columns(heads * m.kv_rank) + columns(heads * m.v_dim) +
           columns(spec.hidden) + (m.q_rank > 0 ? columns(m.q_rank) : 0);
  }
  size_t operator()(const Dense& f) const { return dense(f.width); }
  size_t operator()(const Moe& f) const {
    const int64_t routed = rows * f.sharers;
    return comm::exchange_bytes(f.sharers, rows, spec.hidden, act) +
           Arena::size_of(act, routed * spec.hidden) +
           Arena::size_of(DType::kF32, routed * f.router.experts) +
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
  const bool beside = spec.joins && spec.join == ModelSpec::kBeside;
  size_t block = head.columns(spec.hidden) + floats(max_logit_rows, spec.head_rows()) +
                 (beside ? own.columns(spec.hidden) : 0);
  if (spec.score_width) block += floats(max_logit_rows, spec.score_width);
  const size_t joined = spec.joins ? own.columns(2 * int64_t{spec.hidden}) : 0;
  block = std::max(block, joined + (beside ? floats(max_rows, spec.hidden) : 0));
  for (const Layer& layer : spec.layers) {
    block = std::max(block, (beside ? joined : 0) + std::visit(own, layer.mixer));
    block = std::max(
        block, std::visit(own, layer.ffn) + ops.arena_bytes(layer.ffn, spec.hidden, max_rows, act));
  }
  return floats(max_rows, spec.hidden) + own.columns(spec.hidden) +
         own.columns(std::ssize(spec.taps) * spec.hidden) + block;
}

}  // namespace skiff::model
