// engine/step_executor.h -- runs planned steps through the model and the sampler.
#pragma once
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "engine/batch_builder.h"
#include "engine/block_copies.h"
#include "engine/model_drafter.h"
#include "engine/pooler.h"
#include "engine/slot_tokens.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/loader.h"
#include "ops/pinned_arena.h"
#include "sample/sampler.h"

namespace skiff::engine {

// Activations, batch, page tables and the scratch of `ops` are allocated once, by the constructor;
// a step allocates only what its result holds. Driven by the thread that drives `ops`.
class StepExecutor {
 public:
  struct Options {
    DType act = DType::kF32;            // kF32 or kBF16
    std::vector<WeightFormat> formats;  // the quantized formats among weights
    sched::Limits limits;
    model::HostBlocks* host = nullptr;       // required if plans save or load blocks
    Captures captures;                       // steps that are padded and replayed (see Ops::replay)
    ModelDrafter* drafter = nullptr;         // fills StepResult::drafts
    std::optional<double> forced_rate = {};  // see draft::Settings
    DraftCheck check = {};                   // how drafts are checked
    LogprobsMode logprobs = LogprobsMode::kRawLogprobs;  // see Sampler::Limits
    bool chains = false;                                 // steps may be chained, if the drafter can
  };
  // All must outlive the executor. `kv` has the dtype and block size of the plan's blocks; the
  // model's layers come first, then those of a drafter.
  StepExecutor(const model::LoadedModel& model, Ops& ops, comm::Mesh& mesh,
               std::span<const KvLayer> kv, Options options);
  // For start-up, before the first step and while no block holds anything. Both overwrite the first
  // `blocks` blocks. tune() chooses the algorithms of operations by measuring them; record(),
  // called next, records the steps that are replayed, and runs every kernel that may be needed
  // later once.
  void tune(int blocks);
  void record(int blocks);
  // Sets what a scheduler must know of chained steps (StepPlan::chained).
  void tell_chaining(sched::Limits& limits) const {
    limits.chained_drafts = chained_drafts_;
    limits.chained_reach = chained_drafts_ > 0 ? drafter_->reach() : 0;
  }
  // Launches a step. Waits only if the host must know what an earlier step has drawn, or which
  // drafts were kept before others are checked. At most two steps may be in flight. `round`: the
  // parts of all replicas that share experts, this one's among them, where a device computes.
  void launch(const StepPlan& plan, std::span<const RoundPart> round = {});
  // Waits for the oldest step in flight.
  StepResult collect();
  StepResult run(const StepPlan& plan) {
    launch(plan);
    return collect();
  }
  // Launches the forward pass of a step without rows, for the experts that others compute with. It
  // leaves no result.
  void run_empty(std::span<const RoundPart> round = {});
  Device device() const { return ops_.device(); }
  // The calling thread drives the executor from now on.
  void bind_thread() { ops_.bind_thread(); }
  // Returns the bytes that an executor allocates besides the arena where `ops` computes; for a
  // device, page-locked host memory does not count.
  static size_t scratch_bytes(const ModelSpec& spec, DType act,
                              const std::vector<WeightFormat>& formats, const sched::Limits& limits,
                              int block_size, const Ops& ops);

 private:
  // A step in flight. The memory of its frame's lists is reused by the next step in this place.
  struct Flight {
    StepFrame frame;
    StepResult result;
    uint64_t mark = 0;
    BlockCopies::Begun copies;
    std::chrono::steady_clock::time_point start, launched;
    bool drawn = false;    // the drawn tokens are in `result`
    bool drafted = false;  // so are the drafts, or there is no drafter
    size_t spans = 0;
    // Only with a drafter:
    StepPlan plan;
    Tensor hidden;      // rows behind the last norm, or taps; valid until the next launch
    bool kept = false;  // the drafter has what it needs of them
    // Only of steps with tokens that the host does not know, or that are chained:
    PinnedArena lists;
    Tensor tokens;  // those of all rows
    Tensor drafts;  // [tokens, spans or more]: what was drafted behind the step
  };

  void rehearse(const StepPlan& plan);
  void rehearse_long_pass(int rows, int64_t room);
  void rehearse_draws(int rows);
  void rehearse_drafts(StepPlan plan);
  void rehearse_chain(int64_t room);
  void record(const StepPlan& plan);
  template <class F>
  void for_each_captured(F f) const;
  void compute(const StepPlan& plan, std::span<const RoundPart> round, Flight& flight);
  model::Forward forward(const StepFrame& frame);
  PooledStep& pooled_of(const Flight& flight);
  void report_prompts(const StepPlan& plan, Tensor logits, Flight& flight);
  void sample(Tensor logits, Flight& flight);
  void check_by_depth(const StepPlan& plan, Tensor logits, Flight& flight);
  bool draw_depth(const StepPlan& plan, Tensor logits, int depth, Flight& flight);
  void finish_earlier();
  void finish_draw(Flight& flight);
  void keep(const StepPlan& plan, Flight& flight);
  void draft(Flight& flight);
  void chain(const StepPlan& plan, Flight& flight);
  Tensor draft_lists(const StepFrame& frame, PinnedArena& lists) const;
  void compute_whole(const StepPlan& plan, Flight& flight);
  void run_whole(const StepPlan& plan, StepFrame& frame, Tensor tokens, Tensor drafts);
  void record_chain(const StepPlan& plan, StepFrame& frame, const model::Forward& out);
  void record_whole(const StepPlan& plan);
  void learn_guesses(Flight& flight);
  void finish_guesses(Flight& flight);
  void note_refused(Flight& flight);
  void read_chained(Flight& flight);
  // What a drafter continues from.
  static Tensor hidden_of(const model::Forward& out) {
    return out.taps.rows() > 0 ? out.taps : out.hidden;
  }
  static void gain(size_t span, sample::SampleOutput& out, size_t row, StepResult& result);

  model::Forward forward_layers(const RaggedBatch& batch);

  std::span<const KvLayer> kv_;
  ModelDrafter* drafter_;
  const std::optional<double> forced_rate_;
  const DraftCheck check_;
  const int chained_drafts_;
  Ops& ops_;
  BlockCopies copies_;
  comm::RowExchange& exchange_;
  const sched::Limits limits_;
  Arena arena_;
  model::Decoder decoder_;
  SlotTokens slots_;
  sample::Sampler sampler_;
  Pooler pooler_;
  BatchBuilder builder_;
  RecordedForwards recorded_;
  std::vector<int> refused_;  // by slot: the drafts of its last step that were not kept
  PinnedArena depth_rows_;    // indices of rows of logits, for the draw of one depth
  std::array<Flight, 2> flights_;
  StepFrame empty_;                              // the frame of the last step without rows
  std::array<PooledStep, 2> pooled_;             // what each of them pools
  size_t oldest_ = 0, in_flight_ = 0;            // index in flights_, and their count
  std::chrono::steady_clock::time_point ended_;  // when the last collected step ended
};

}  // namespace skiff::engine
