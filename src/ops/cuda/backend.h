// ops/cuda/backend.h -- Ops on a CUDA device: hands each operation to the folder that has it.
// backend.cc has the steps; backend_*.cc the operations, by kind.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "ops/cuda/attention/attend.h"
#include "ops/cuda/beside.h"
#include "ops/cuda/copy_stream.h"
#include "ops/cuda/deliver.h"
#include "ops/cuda/linear/dense.h"
#include "ops/cuda/mla/expanded_attention.h"
#include "ops/cuda/mla/heads.h"
#include "ops/cuda/mla/latent_attention.h"
#include "ops/cuda/moe/deferred.h"
#include "ops/cuda/one_row/one_row.h"
#include "ops/cuda/sampling/sampling.h"
#include "ops/cuda/side_lane.h"
#include "ops/cuda/stream.h"
#include "ops/ops.h"

namespace skiff::cuda {

// Scratch for f32 sums before a bias is added; GEMMs with more rows are done in pieces.
constexpr size_t kBiasScratch = size_t{256} << 20;

class CudaOps final : public Ops {
 public:
  explicit CudaOps(const CudaOptions& options);

  std::string_view name() const override { return "cuda"; }
  std::string arithmetic() const override;
  void bind_thread() override;
  // The stream, after the gathered and the deferred operations have been started on it: for a
  // collective of this rank.
  cudaStream_t queue() { return stream(); }
  // The number of the step's rows that are no padding, on the device; null before the first step.
  const int32_t* live() const { return live_; }
  // Until this is called again, or the next step begins, so many of the rows that route() gets come
  // first and are no padding.
  void route_only(const int32_t* live) { routed_ = live; }
  // Scratch on the device is allocated by the constructor and counts as memory in use; the plans of
  // latent attention are reserved where a model has it.
  size_t scratch_bytes(const StepBounds& bounds) const override;
  void reserve(const StepBounds& bounds) override;
  Device device() const override { return device_; }
  bool batch_invariant() const override { return options_.batch_invariant; }
  size_t prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const override;
  size_t arena_bytes(const FeedForward& ffn, int64_t hidden, int64_t rows,
                     DType act) const override;

  void copy(Tensor out, Tensor x) override;
  uint64_t mark() override;
  void wait(uint64_t mark) override { stream_.wait(mark); }
  uint64_t stamp() override;
  double seconds_between(uint64_t from, uint64_t to) override {
    return stream_.seconds_between(from, to);
  }
  CopiesBeside copy_beside(std::span<const Arrival> copies) override;
  void after(uint64_t number) override;
  void wait_copies(uint64_t number) override { copies_beside_.wait(number); }
  void replay(const std::optional<ReplayKey>& key, const std::function<void()>& work) override;
  void run_step(const std::optional<ReplayKey>& key, const WholeStep& step,
                const std::function<void()>& work) override;
  void rehearse(const std::function<void()>& work) override;
  std::vector<std::byte> tuning() const override { return to_bytes(products_.tuned()); }
  bool adopt_tuning(std::span<const std::byte> tuning) override;

  bool multiplies(const WeightFormat& format) const override;
  void quantize(const Linear& q, Tensor plain, QuantRule rule) override;
  Linear prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) override;
  void begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) override;
  void load_tokens(Tensor tokens, Tensor last) override;
  void store_tokens(Tensor last, Tensor slots, Tensor tokens) override;

  void embed(Tensor out, Tensor table, Tensor ids) override;
  void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) override;
  void linear(Tensor out, Tensor x, const Linear& w) override;
  void soon(const Linear& w) override { one_row_.soon(w); }
  void begin_aside() override { aside_ = true; }
  void end_aside() override { aside_ = false; }
  void join() override { side_.join(); }
  void gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                 const RaggedBatch& batch, const KvLayer& kv) override;
  void gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                   const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) override;
  void gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                  const KvLayer& kv) override;
  void heads_linear(Tensor out, Tensor x, const Linear& w) override;
  void mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec, const RaggedBatch& batch,
                 const KvLayer& cache) override;
  void mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                  const RaggedBatch& batch, const KvLayer& cache) override;
  void latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                     const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                     Arena& arena) override;
  void gated_act(Tensor out, Tensor gate_up, Act act) override;
  void gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) override;
  Routing route(Tensor logits, Tensor bias, const Router& router, Arena& arena) override;
  void experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
               const Linear& down, Act act, Arena& arena) override;
  void add(Tensor out, Tensor x) override;
  void relu(Tensor x) override;
  void gather_rows(Tensor out, Tensor x, Tensor rows) override;

  void store_edits(const EditPages& pages, const EditChanges& changes) override;
  void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) override;
  void mask_logits(Tensor logits, Tensor rows, Tensor allowed) override;
  void count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) override;
  void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) override;
  void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) override;
  void draw_logprobs(Tensor logits, const SampleBatch& batch) override;
  void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) override;
  void settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out) override;
  void take_back(Tensor values, Tensor slots, Tensor amounts) override;
  void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids, Tensor top_logprobs,
                Tensor logits, Tensor chosen) override;

 private:
  // The stream, after the gathered and the deferred operations have been started on it.
  cudaStream_t stream();
  // Rows that the operation before rounded for the product that may follow.
  struct Ahead {
    Tensor x;
    RoundedRows rounded;
  };
  bool rounds_ahead(const Tensor& out) const;
  std::optional<RoundedRows> ahead_of(const Tensor& x) const;
  // join() offers an operation to one_row_. Returns true if it joined the gathered operations.
  template <class F>
  bool gathered(F join) {
    if (options_.gather) deferred_.start(stream_.get());
    bool joined = options_.gather && join();
    if (!joined && !one_row_.empty()) {
      stream();
      joined = join();
    }
    if (joined) done();
    return joined;
  }
  bool records(const std::optional<ReplayKey>& key) const;
  void plan_step(const RaggedBatch& batch, std::span<const Arrival> arrivals);
  void bring(const RaggedBatch& batch, Starts& starts);
  bool packs(const Linear& plain, const WeightFormat& keep) const;
  void copy_packed(std::byte* to, const Linear& plain);
  void product(Tensor out, Tensor x, const Linear& w);
  bool goes_aside(const Tensor& x, const Linear& w, bool gated);
  const float* speeds_of(const Rope& rope);
  // Returns whether steps of such heads may be computed un-absorbed.
  bool expands(const Mla& spec) const;
  // Called after each operation: waits for it where options_.synchronous.
  void done();

  CudaOptions options_;
  Device device_;
  Stream stream_;
  CopyStream copies_beside_{stream_};
  Buffer scratch_;  // for GEMMs
  DenseProducts products_;
  SideLane side_;
  bool aside_ = false;  // between begin_aside() and end_aside()
  Buffer row_scratch_;
  OneRow one_row_;               // gathers operations on one row
  Deferred deferred_;            // the end of a mixture of experts
  LastProduct last_product_;     // forgotten by stream()
  std::optional<Ahead> ahead_;   // likewise
  bool has_channels_ = false;    // a weight of quant/float8_channels.h was prepared
  Buffer plans_, pinned_plans_;  // for attention
  Attention attention_;
  LatentAttention latent_attention_;
  HeadProducts head_products_;
  ExpandedAttention expanded_attention_;
  std::vector<SmallCopy> copies_;   // the copies of plan_step()
  std::vector<MovedPlan> moved_;    // its plans, where rows move back
  std::vector<SmallCopy> results_;  // the copies behind run_step()
  Buffer sampling_memory_;
  Sampling sampling_;
  std::vector<std::pair<Rope, Buffer>> speeds_;  // rope frequencies, on the device
  bool rehearsing_ = false;
  // Numbers of non-padding rows, on the device: of this step, and of what route() gets.
  const int32_t *live_ = nullptr, *routed_ = nullptr;
};

}  // namespace skiff::cuda
