// engine/step_executor.h -- one planned step through the model and the sampler, on the caller's
// thread.
#pragma once
#include <span>
#include <vector>

#include "engine/batch_builder.h"
#include "model/kv_cache.h"
#include "model/loader.h"
#include "sample/sampler.h"

namespace skiff {

// Activations, batch and page tables are allocated here, once; a step allocates only what rides
// home in its result. Driven by the thread that drives `ops`.
class StepExecutor {
 public:
  // All must outlive the executor. `kv` is of the dtype and block size that the plan's blocks
  // have; `act` is kF32 or kBF16; `host` is needed where plans save and load blocks.
  StepExecutor(const LoadedModel& model, Ops& ops, std::span<const KvLayer> kv, DType act,
               const Limits& limits, HostBlocks* host = nullptr);
  StepResult run(const StepPlan& plan);
  size_t arena_peak() const { return arena_.peak(); }

 private:
  void copy_blocks(const StepPlan& plan);
  void report_prompts(const StepPlan& plan, Tensor logits, StepResult& result);
  void sample(const StepPlan& plan, Tensor logits, StepResult& result);
  void check_drafts(const StepPlan& plan, Tensor logits, StepResult& result);
  void gain(size_t span, int slot, SampleOutput& out, size_t row, StepResult& result);

  std::span<const KvLayer> kv_;
  HostBlocks* host_;
  Mesh mesh_;
  Arena arena_;
  Decoder decoder_;
  Sampler sampler_;
  BatchBuilder builder_;
  std::vector<Token> last_;  // [max_seqs] what each slot sampled last
};

}  // namespace skiff
