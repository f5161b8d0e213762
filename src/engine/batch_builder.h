// engine/batch_builder.h -- a StepPlan as the arrays that kernels read.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "engine/round.h"
#include "engine/step_frame.h"
#include "message/step.h"
#include "ops/upload.h"
#include "sched/scheduler.h"

namespace skiff::engine {

// Steps that are padded to a few shapes so that each can be recorded: steps with one row per
// sequence, steps with 1 + drafts rows per sequence, or with fewer of some sequences, and, of one
// sequence, those with fewer drafts: several sequences hardly have the same number of drafts unless
// it is the highest.
struct Captures {
  std::vector<int> sizes;  // numbers of sequences in rising order; may be empty
  int drafts = 0;          // 0: steps with drafts are not recorded
  // Steps of a drafter: sequences have up to 1 + drafts rows, each as many as it has, and one row
  // of logits at most. Steps are padded to one row for each sequence, or to 1 + drafts.
  bool ragged = false;
};

// Steps whose verdicts the host need not know before the next one (StepPlan::chained).
struct Chaining {
  int drafts = 0;  // that a slot may have where Ops computes; 0: no such steps
  Tensor refused;  // MovedBack::refused
  std::optional<double> forced_rate = {};  // see draft::Settings
};

// Not thread-safe.
class BatchBuilder {
 public:
  // Allocates room for the largest step that `limits` allows.
  BatchBuilder(const sched::Limits& limits, int block_size, Captures captures, Ops& ops,
               const Chaining& chaining = {});
  // Returns the bytes that the constructor allocates where `device` computes.
  static size_t memory_bytes(const sched::Limits& limits, int block_size, Device device);
  // Fills `frame` with the step. A token kOnDevice becomes -1 - slot, for Ops::load_tokens, or, of
  // draft j, -1 - ((1 + j) * max_seqs + slot). Draws
  // are prepared for the slots of `sampler`, which must be open; if it is null, nothing will be
  // drawn. There is host memory for two steps: before the next call, done_with() must name the mark
  // after which this step is done. With the parts of a round, of which this step is one, all
  // replicas have either recorded steps of as many rows, or, if there is no recording that suits
  // all, at least one row each, which may be padding.
  //
  // The shape alone says where the arrays of a recorded step lie that is chained or a drafter's,
  // but for the parameters of draws; where the step is whole, it says where these lie, too.
  void build(const StepPlan& plan, const sample::Sampler* sampler, StepFrame& frame,
             std::span<const RoundPart> round = {});
  void done_with(uint64_t mark) { upload_.done_with(mark); }
  const Captures& captures() const { return captures_; }
  // Returns the number of sequences of the recorded step that fits this one; 0 if there is none.
  int captured_seqs(int seqs, int rows_per_seq) const;
  // Returns Captures::sizes for which steps with so many rows a sequence are recorded, without
  // those that have too many rows.
  std::vector<int> recorded_sizes(int rows_per_seq) const;

 private:
  bool nearly_fills(const RoundPart& part) const;
  int padded_rows(const RoundPart& part) const;
  int padded_rows(const StepPlan& plan) const;
  int recorded_seqs(int rows, int rows_per_seq) const;
  int captured_rows(std::span<const RoundPart> parts) const;
  void choose_shape(const RoundPart& own, std::span<const RoundPart> round, StepFrame& frame) const;
  void add_rows(const StepPlan& plan, RaggedBatch& batch);
  void add_pages(const StepPlan& plan, RaggedBatch& batch);
  void choose_logit_rows(const StepPlan& plan, const sample::Sampler* sampler, StepFrame& frame);
  void choose_drafts(const StepPlan& plan, const sample::Sampler* sampler, StepFrame& frame);
  int want(int row, int count);
  Token code_of(Token token, const Span& span, int row) const;
  MovedBack moved_back(const StepPlan& plan, int num_seqs, bool always);
  void add_verdicts(const StepPlan& plan, int64_t n, StepFrame& frame);
  Tensor sampled_slots(const LogitRows& rows, size_t n);
  sample::DrawColumns columns(const sample::Sampler* sampler, const StepFrame& frame);

  int block_size_, max_pages_, max_rows_, max_logit_rows_, max_seqs_;
  Captures captures_;
  const Chaining chaining_;
  Upload upload_;
  Buffer pages_;  // [max_seqs, max_pages] on the device; empty where the host computes
  std::vector<int32_t> out_rows_;
};

}  // namespace skiff::engine
