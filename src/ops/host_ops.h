// ops/host_ops.h -- what every backend in host memory does alike: whatever it is asked for is done
// when the call returns.
#pragma once
#include "ops/ops.h"

namespace skiff {

class HostOps : public Ops {
 public:
  Device device() const final { return {}; }
  bool batch_invariant() const final { return true; }
  int64_t expert_rows() const final { return 1024; }
  void copy(Tensor out, Tensor x) final;
  uint64_t mark() final { return 0; }
  void wait(uint64_t) final {}
  void replay(uint64_t, const std::function<void()>& work) final { work(); }
  void rehearse(const std::function<void()>& work) final { work(); }
  void begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) override;
  void load_tokens(Tensor tokens, Tensor last) final;
  void store_tokens(Tensor last, Tensor slots, Tensor tokens) final;
  void store_edits(const EditPages& pages, const EditChanges& changes) final;
  void gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                   const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) final;
  void gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) final;
};

}  // namespace skiff
