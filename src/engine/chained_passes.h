// engine/chained_passes.h -- drafts of a model that are made where Ops computes, while the host
// knows neither what the step has drawn nor which of its drafts were kept.
#pragma once
#include <list>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/slot_tokens.h"
#include "model/decoder.h"

namespace skiff::engine {

// The first pass has the rows of the step itself. A module takes each with the token that follows
// it, a model that token one position further on; what they compute behind a refused draft is
// overwritten by the next step. Drafts are drawn behind the last row that is right. A further pass
// has one row for each sequence, the draft before, at a position for which the host has a bound
// only (RaggedBatch::moved_back).
//
// Driven by the thread that drives `ops`. All memory is taken by the constructor.
class ChainedPasses {
 public:
  struct Options {
    sched::Limits limits;       // those of the steps
    bool joins = false;         // a module drafts (ModelSpec::joins), and no model
    int tokens = 1;             // drafts of a sequence
    int page_size = 0;          // positions of a page
    std::vector<int> captures;  // numbers of sequences of passes that are recorded
  };
  // The drafter's own. All must outlive this. `joined` has room for a module's hidden rows of a
  // pass, `combined` for those of a step, if taps are combined (ModelSpec::kBeside); `greedy` draws
  // the most likely token of each sequence.
  struct Parts {
    Ops& ops;
    model::Decoder& decoder;
    std::span<const KvLayer> kv;
    Arena& arena;
    Tensor joined, combined;
    SampleBatch greedy;
  };
  ChainedPasses(const Parts& parts, const Options& options, const SlotTokens& slots);
  // Returns the bytes that the constructor takes where `ops` computes.
  static size_t memory_bytes(const Options& options, const Ops& ops);

  struct Step {
    const StepPlan& plan;    // chained
    const StepFrame& frame;  // its forward pass and its draw have been started
    Tensor hidden = {};      // rows of the whole batch, or their taps, for a module
    Tensor out;  // [tokens, spans or more] i32 in page-locked memory: the drafts, once done
    bool joined = false;  // the step was recorded with what join() does
  };
  // Starts all passes behind a step. The memory of the passes before the last ones is used again.
  void launch(const Step& step);
  // What can be recorded with the step itself, since it has the step's batch: all of a module's
  // first pass but the copy of its drafts, which joined_drafts() names. Nothing for a model.
  void join(const Step& step);
  Arrival joined_drafts(const Step& step) const;
  // Returns how many passes there are behind a step.
  int passes() const { return options_.tokens; }

 private:
  struct Pass {
    BatchBuilder builder;
    StepFrame frame;
  };
  Pass make_pass(int rows_per_seq, Tensor moved_by) const;
  void build(Pass& pass, const StepPlan& plan, int depth) const;
  void first_of_module(const Step& step);
  void first_of_model(const Step& step, Pass& pass);
  void further(const Step& step, Pass& pass, int depth);
  RaggedBatch settle(const Step& step, RaggedBatch batch);
  void draft(const RaggedBatch& batch, Tensor hidden, Tensor slots, int depth);
  Arrival drafts_of(const Step& step, int64_t seqs, int depth) const;
  static StepPlan ahead(const StepPlan& plan);
  static StepPlan behind(const StepPlan& plan, int further);

  Parts parts_;
  const Options options_;
  const SlotTokens& slots_;
  Buffer memory_;
  Tensor next_, ends_, ids_;
  std::list<Pass> passes_;  // by depth; a module's first has the batch of the step
};

}  // namespace skiff::engine
