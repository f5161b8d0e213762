// quantize/tap_ops.h -- Ops for one layer of a model: the residual stream comes from and goes to
// memory of the caller, inputs of linear layers are shown to it, and activations are rounded where
// the weights ask for it.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "quantize/forward_ops.h"
#include "quantize/round_input.h"

namespace skiff::quantize {

// A linear layer as the decoder knows it; `expert` of a stack, else 0.
struct Site {
  const Linear* weight = nullptr;
  int64_t expert = 0;
};

// Experts are computed one after the other, because what each of them sees must be seen. Their
// stacks stay kPlain for that, and `experts` has the prepared weights. Activations are float32.
class TapOps final : public ForwardOps {
 public:
  using Watch = std::function<void(const Site& site, const float* rows, int64_t count)>;
  using WatchKv = std::function<void(Tensor keys, Tensor values)>;

  TapOps(Ops& base, const ModelSpec& layer, int max_rows);

  // Weights of a stack, one for each expert.
  void set_experts(const Linear& stack, std::vector<Linear> experts);
  // Activations that a weight multiplies are rounded so.
  void set_input(const Linear& weight, const RoundedInput& input);

  // Settings of a pass. `stop_after`: once the inputs of that weight have been seen, no operation
  // of the step does anything, because nobody will look at its results. It must be a weight of
  // linear layers whose sites come last. `residual` is read by embed() and written by the last
  // norm.
  void begin(Matrix* residual, const Norm* last_norm, const Linear* stop_after, Watch watch,
             WatchKv watch_kv);

  void embed(Tensor out, Tensor table, Tensor ids) override;
  void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) override;
  void linear(Tensor out, Tensor x, const Linear& w) override;
  void soon(const Linear& /*w*/) override {}  // it may be a stack that base has not prepared
  void gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                   const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) override;
  void gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                  const KvLayer& kv) override;
  void mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec, const RaggedBatch& batch,
                 const KvLayer& cache) override;
  void latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                     const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                     Arena& arena) override;
  void gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) override;
  Routing route(Tensor logits, Tensor bias, const Router& router, Arena& arena) override;
  void experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
               const Linear& down, Act act, Arena& arena) override;
  void add(Tensor out, Tensor x) override;
  void gather_rows(Tensor out, Tensor x, Tensor rows) override;

 private:
  // Shows x, and returns it as the weight multiplies it; what it returns is valid until the next
  // call.
  Tensor seen(const Linear& weight, Tensor x, int64_t expert = 0);
  void expert(const Linear& gate_up, const Linear& down, int64_t e, const Routing& routing, Act act,
              Tensor x, Tensor out);

  std::map<const Linear*, std::vector<Linear>> experts_;
  std::map<const Linear*, RoundedInput> inputs_;
  std::vector<float> rounded_;
  Arena scratch_;
  Matrix* residual_ = nullptr;
  const Norm* last_norm_ = nullptr;
  const Linear* stop_after_ = nullptr;
  Watch watch_;
  WatchKv watch_kv_;
  bool stopped_ = false;
};

}  // namespace skiff::quantize
