// ops/reference/reference_ops.h -- the slow, obvious Ops that judges every other. One thread,
// sums in double, every result rounded once. Methods are grouped in files by kind.
#pragma once
#include "ops/host_ops.h"

namespace skiff::reference {

class ReferenceOps : public HostOps {
 public:
  std::string_view name() const override { return "reference"; }
  std::string arithmetic() const override { return "reference"; }
  // The reference allocates as it computes.
  size_t scratch_bytes(const StepBounds&) const override { return 0; }
  void reserve(const StepBounds&) override {}
  size_t prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const override;

  bool multiplies(const WeightFormat& format) const override;
  void quantize(const Linear& q, Tensor plain, QuantRule rule) override;
  Linear prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) override;

  void embed(Tensor out, Tensor table, Tensor ids) override;
  void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) override;
  void linear(Tensor out, Tensor x, const Linear& w) override;
  void gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                 const RaggedBatch& batch, const KvLayer& kv) override;
  void gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                  const KvLayer& kv) override;
  void heads_linear(Tensor out, Tensor x, const Linear& w) override;
  void mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec, const RaggedBatch& batch,
                 const KvLayer& cache) override;
  void mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                  const RaggedBatch& batch, const KvLayer& cache) override;
  void gated_act(Tensor out, Tensor gate_up, Act act) override;
  Routing route(Tensor logits, Tensor bias, const Router& router, Arena& arena) override;
  void experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
               const Linear& down, Act act, Arena& arena) override;
  void add(Tensor out, Tensor x) override;
  void relu(Tensor x) override;
  void gather_rows(Tensor out, Tensor x, Tensor rows) override;

  void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) override;
  void mask_logits(Tensor logits, Tensor rows, Tensor allowed) override;
  void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) override;
  void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) override;
  void draw_logprobs(Tensor logits, const SampleBatch& batch) override;
  void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) override;
  void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids, Tensor top_logprobs,
                Tensor logits, Tensor chosen) override;
};

}  // namespace skiff::reference
