// ops/host_ops.h -- the common part of backends in host memory: every operation is complete when
// its call returns.
#pragma once
#include <array>
#include <chrono>

#include "ops/ops.h"

namespace skiff {

class HostOps : public Ops {
 public:
  Device device() const final { return {}; }
  bool batch_invariant() const final { return true; }
  size_t arena_bytes(const FeedForward& ffn, int64_t hidden, int64_t rows, DType act) const final;
  void bind_thread() override {}
  void copy(Tensor out, Tensor x) final;
  uint64_t mark() final { return 0; }
  void wait(uint64_t) final {}
  uint64_t stamp() override;
  double seconds_between(uint64_t from, uint64_t to) override;
  void replay(const std::optional<ReplayKey>&, const std::function<void()>& work) override {
    work();
  }
  void rehearse(const std::function<void()>& work) final { work(); }
  void begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) override;
  void load_tokens(Tensor tokens, Tensor last) final;
  void store_tokens(Tensor last, Tensor slots, Tensor tokens) final;
  void settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out) final;
  void take_back(Tensor values, Tensor slots, Tensor amounts) final;
  void store_edits(const EditPages& pages, const EditChanges& changes) final;
  void count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) override;
  void gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                   const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) final;
  void gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) final;

 private:
  static void move_back(const RaggedBatch& batch);

  using Clock = std::chrono::steady_clock;
  std::array<Clock::time_point, 16> stamps_;
  uint64_t num_stamps_ = 0;
};

}  // namespace skiff
