// engine/step_executor.h -- planned steps through the model and the sampler.
#pragma once
#include <chrono>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/batch_builder.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/loader.h"
#include "sample/sampler.h"

namespace skiff {

// Activations, batch, page tables and the scratch of `ops` are allocated here, once; a step
// allocates only what rides home in its result. Driven by the thread that drives `ops`.
class StepExecutor {
 public:
  // All must outlive the executor. `kv` is of the dtype and block size that the plan's blocks
  // have; `act` is kF32 or kBF16; `host` is needed where plans save and load blocks. Steps of
  // decodes are filled up to `capture_sizes` and replayed (see BatchBuilder and Ops::replay).
  StepExecutor(const LoadedModel& model, Ops& ops, std::span<const KvLayer> kv, DType act,
               const Limits& limits, HostBlocks* host = nullptr,
               std::vector<int> capture_sizes = {});
  // Start-up, before the first step and while no block holds anything: finds out how steps are
  // computed fastest, records those of decodes, and does once what may be asked for later. `blocks`
  // may be written to.
  void warm_up(int blocks);
  // Asks for a step; waits only where the host must know what an earlier one has drawn. At most two
  // steps may be on their way.
  void launch(const StepPlan& plan);
  // Waits for the oldest step on its way.
  StepResult collect();
  StepResult run(const StepPlan& plan) {
    launch(plan);
    return collect();
  }
  // The calling thread drives the executor from now on.
  void bind_thread() { ops_.bind_thread(); }
  // What an executor allocates besides the arena, in bytes where `ops` computes and, for a device,
  // without page-locked host memory.
  static size_t scratch_bytes(const ModelSpec& spec, DType act, const Limits& limits,
                              int block_size, const Ops& ops);

 private:
  // A step on its way.
  struct Flight {
    StepResult result;
    PendingDraw draw;
    std::vector<size_t> sampled;  // spans
    uint64_t mark = 0;
    std::optional<std::pair<uint64_t, uint64_t>> copies;  // stamps around saves and loads
    std::chrono::steady_clock::time_point start, launched;
    bool drawn = false;  // what the draw gave is in the result
  };

  void rehearse(const StepPlan& plan);
  void rehearse_draws(int rows);
  void copy_blocks(const StepPlan& plan, Flight& flight);
  Tensor forward(const BuiltStep& step);
  void report_prompts(const StepPlan& plan, Tensor logits, StepResult& result);
  void sample(Tensor logits, const BuiltStep& step, const SampleBatch& columns, Flight& flight);
  void check_drafts(const StepPlan& plan, Tensor logits, Flight& flight);
  void finish_draw(Flight& flight);
  static void gain(size_t span, SampleOutput& out, size_t row, StepResult& result);

  std::span<const KvLayer> kv_;
  HostBlocks* host_;
  Ops& ops_;
  const Limits limits_;
  Mesh mesh_;
  Arena arena_;
  Decoder decoder_;
  Sampler sampler_;
  std::vector<Tensor> captured_;  // logits of each replayed size, by padded rows
  BatchBuilder builder_;
  Buffer last_memory_;
  Tensor last_;  // [max_seqs] i32, where Ops computes: what each slot sampled last
  PinnedArena draft_slots_;
  std::deque<Flight> flights_;
  std::chrono::steady_clock::time_point ended_;  // when the step collected last did
};

}  // namespace skiff
