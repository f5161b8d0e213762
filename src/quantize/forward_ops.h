// quantize/forward_ops.h -- Ops that pass everything on to another backend: the base of what looks
// at, or changes, a few operations.
#pragma once
#include "ops/ops.h"

namespace skiff::quantize {

// `base` must outlive it.
class ForwardOps : public Ops {
 public:
  explicit ForwardOps(Ops& base) : base_(base) {}

  std::string_view name() const override { return base_.name(); }
  Device device() const override { return base_.device(); }
  bool batch_invariant() const override { return base_.batch_invariant(); }
  std::string arithmetic() const override { return base_.arithmetic(); }
  void bind_thread() override { base_.bind_thread(); }
  size_t scratch_bytes(const StepBounds& bounds) const override {
    return base_.scratch_bytes(bounds);
  }
  void reserve(const StepBounds& bounds) override { base_.reserve(bounds); }
  size_t prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const override {
    return base_.prepared_bytes(shape, keep);
  }
  size_t arena_bytes(const FeedForward& ffn, int64_t hidden, int64_t rows,
                     DType act) const override {
    return base_.arena_bytes(ffn, hidden, rows, act);
  }
  void copy(Tensor out, Tensor x) override { base_.copy(out, x); }
  uint64_t mark() override { return base_.mark(); }
  void wait(uint64_t mark) override { base_.wait(mark); }
  uint64_t stamp() override { return base_.stamp(); }
  double seconds_between(uint64_t from, uint64_t to) override {
    return base_.seconds_between(from, to);
  }
  CopiesBeside copy_beside(std::span<const Arrival> copies) override {
    return base_.copy_beside(copies);
  }
  void after(uint64_t number) override { base_.after(number); }
  void wait_copies(uint64_t number) override { base_.wait_copies(number); }
  void replay(const std::optional<ReplayKey>& key, const std::function<void()>& work) override {
    base_.replay(key, work);
  }
  void rehearse(const std::function<void()>& work) override { base_.rehearse(work); }
  std::vector<std::byte> tuning() const override { return base_.tuning(); }
  bool adopt_tuning(std::span<const std::byte> tuning) override {
    return base_.adopt_tuning(tuning);
  }
  bool multiplies(const WeightFormat& format) const override { return base_.multiplies(format); }
  void quantize(const Linear& q, Tensor plain, QuantRule rule) override {
    base_.quantize(q, plain, rule);
  }
  Linear prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) override {
    return base_.prepare(plain, keep, owner);
  }
  void begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) override {
    base_.begin_step(batch, arrivals);
  }
  void load_tokens(Tensor tokens, Tensor last) override { base_.load_tokens(tokens, last); }
  void store_tokens(Tensor last, Tensor slots, Tensor tokens) override {
    base_.store_tokens(last, slots, tokens);
  }
  void embed(Tensor out, Tensor table, Tensor ids) override { base_.embed(out, table, ids); }
  void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) override {
    base_.add_norm(out, residual, delta, norm);
  }
  void linear(Tensor out, Tensor x, const Linear& w) override { base_.linear(out, x, w); }
  void soon(const Linear& w) override { base_.soon(w); }
  void begin_aside() override { base_.begin_aside(); }
  void end_aside() override { base_.end_aside(); }
  void join() override { base_.join(); }
  void gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                 const RaggedBatch& batch, const KvLayer& kv) override {
    base_.gqa_store(qkv, q, k, spec, batch, kv);
  }
  void gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                   const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) override {
    base_.gqa_project(qkv, x, w, q, k, spec, batch, kv);
  }
  void gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                  const KvLayer& kv) override {
    base_.gqa_attend(out, q, spec, batch, kv);
  }
  void heads_linear(Tensor out, Tensor x, const Linear& w) override {
    base_.heads_linear(out, x, w);
  }
  void mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec, const RaggedBatch& batch,
                 const KvLayer& cache) override {
    base_.mla_store(q, kv, norm, spec, batch, cache);
  }
  void mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                  const RaggedBatch& batch, const KvLayer& cache) override {
    base_.mla_attend(out, q_latent, q_rope, spec, batch, cache);
  }
  void latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                     const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                     Arena& arena) override {
    base_.latent_attend(values, q, absorb, value, spec, batch, cache, arena);
  }
  void gated_act(Tensor out, Tensor gate_up, Act act) override {
    base_.gated_act(out, gate_up, act);
  }
  void gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) override {
    base_.gated_linear(out, x, w, act, arena);
  }
  Routing route(Tensor logits, Tensor bias, const Router& router, Arena& arena) override {
    return base_.route(logits, bias, router, arena);
  }
  void experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
               const Linear& down, Act act, Arena& arena) override {
    base_.experts(out, x, routing, gate_up, down, act, arena);
  }
  void add(Tensor out, Tensor x) override { base_.add(out, x); }
  void relu(Tensor x) override { base_.relu(x); }
  void gather_rows(Tensor out, Tensor x, Tensor rows) override { base_.gather_rows(out, x, rows); }
  void store_edits(const EditPages& pages, const EditChanges& changes) override {
    base_.store_edits(pages, changes);
  }
  void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) override {
    base_.edit_logits(logits, pages, edits);
  }
  void mask_logits(Tensor logits, Tensor rows, Tensor allowed) override {
    base_.mask_logits(logits, rows, allowed);
  }
  void count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) override {
    base_.count_tokens(seen, slots, tokens, rows);
  }
  void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) override {
    base_.penalize(logits, seen, penalties);
  }
  void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) override {
    base_.sample(out_ids, logits, batch);
  }
  void draw_logprobs(Tensor logits, const SampleBatch& batch) override {
    base_.draw_logprobs(logits, batch);
  }
  void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) override {
    base_.check_drafts(ids, target, draft, checks);
  }
  void settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out) override {
    base_.settle_drafts(drafts, out);
  }
  void take_back(Tensor values, Tensor slots, Tensor amounts) override {
    base_.take_back(values, slots, amounts);
  }
  void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids, Tensor top_logprobs,
                Tensor logits, Tensor chosen) override {
    base_.logprobs(chosen_logprob, chosen_rank, top_ids, top_logprobs, logits, chosen);
  }

 protected:
  Ops& base_;
};

}  // namespace skiff::quantize
