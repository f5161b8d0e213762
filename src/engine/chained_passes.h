// engine/chained_passes.h -- drafts of a module that are made where Ops computes, while the host
// knows neither what the step has drawn nor which of its drafts were kept.
#pragma once
#include <list>
#include <map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/slot_tokens.h"
#include "model/decoder.h"

namespace skiff::engine {

// The first pass has the rows of the step itself: a module takes each with the token that follows
// it, and what it computes of rows behind a refused draft is overwritten by the next step. Drafts
// are drawn behind the last row that is right. A further pass has one row for each sequence, the
// draft before, at a position that the host knows only a bound of (RaggedBatch::moved_back).
//
// Driven by the thread that drives `ops`. All memory is taken by the constructor.
class ChainedPasses {
 public:
  struct Options {
    sched::Limits limits;       // those of the steps
    DType act = DType::kF32;    // of hidden rows
    int tokens = 1;             // drafts of a sequence
    int page_size = 0;          // positions of a page
    std::vector<int> captures;  // numbers of sequences of passes that are recorded
  };
  // The drafter's own. All must outlive this. `joined` has room for the hidden rows of a pass,
  // `greedy` draws the most likely token of each sequence.
  struct Parts {
    Ops& ops;
    model::Decoder& decoder;
    std::span<const KvLayer> kv;
    Arena& arena;
    Tensor joined;
    SampleBatch greedy;
  };
  ChainedPasses(const Parts& parts, const Options& options, const SlotTokens& slots);
  // Returns the bytes that the constructor takes where `ops` computes.
  static size_t memory_bytes(const Options& options, const Ops& ops);

  struct Step {
    const StepPlan& plan;         // chained
    const StepFrame& frame;       // its forward pass has been started, and
    const DraftVerdicts& drafts;  // its draw, of which these are the verdicts
    Tensor hidden;                // rows of the whole batch, for the module
    Tensor out;  // [tokens, spans] i32 in page-locked memory: the drafts, once done
  };
  // Starts all passes behind a step. The memory of the passes before the last ones is used again.
  void launch(const Step& step);
  int passes() const { return options_.tokens; }  // of one step

 private:
  struct Pass {
    BatchBuilder builder;
    StepFrame frame;
  };
  model::Forward forward(const RaggedBatch& batch, const std::optional<ReplayKey>& key,
                         Tensor hidden, Tensor tokens);
  void draw(const Step& step, int depth, const model::Forward& out, Tensor ends);
  StepPlan behind(const StepPlan& plan, int depth) const;

  Parts parts_;
  const Options options_;
  const SlotTokens& slots_;
  Buffer memory_;
  Tensor next_, ends_, ids_;
  std::list<Pass> passes_;  // those behind the first
  std::map<ReplayKey, model::Forward> captured_;
};

}  // namespace skiff::engine
