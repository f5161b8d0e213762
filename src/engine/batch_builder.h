// engine/batch_builder.h -- a StepPlan as the arrays that kernels read.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "message/step.h"
#include "ops/upload.h"
#include "sched/scheduler.h"

namespace skiff {

// Rows of logits that a step computes, and for whom. The rows lie one after the other: first one
// for each span that samples, then the drafts to be checked, then what prompts report.
struct LogitRows {
  struct Range {
    size_t span = 0;
    int row = 0;               // first of `count` rows of the step
    int begin = 0, count = 0;  // their rows of logits
  };
  std::vector<size_t> sampled;  // spans; row i belongs to sampled[i]
  std::vector<int> slots;       // their slots
  std::vector<Range> drafts, prompts;
};

// A step for Ops, in its memory once begin_step has brought what arrives.
struct BuiltStep {
  RaggedBatch batch;
  std::array<Arrival, 2> arrivals;
  Tensor slots;      // [sampled] i32: whose tokens are drawn
  bool decode_only;  // one row for each sequence, all of which sample, and nothing else
};

// Not thread-safe.
class BatchBuilder {
 public:
  // Room for the largest step that `limits` allows, and for `more` bytes in its upload. Steps of
  // decodes only are filled up with padding to the next of `capture_sizes` (rising; may be empty),
  // so that few shapes occur.
  BatchBuilder(const Limits& limits, int block_size, std::vector<int> capture_sizes, Ops& ops,
               size_t more = 0);
  // What it allocates where `device` is, in bytes.
  static size_t memory_bytes(const Limits& limits, int block_size, Device device, size_t more);
  // A token kOnDevice becomes -1 - slot, for Ops::load_tokens. `add` may put more into the upload;
  // logit_rows() is there by then. The result is valid until the next call, before which
  // done_with() says by which mark the step will be done: of its host memory there is enough for
  // two steps.
  const BuiltStep& build(const StepPlan& plan, const std::function<void(Upload&)>& add = {});
  void done_with(uint64_t mark) { upload_.done_with(mark); }
  const std::vector<int>& capture_sizes() const { return capture_sizes_; }
  const LogitRows& logit_rows() const { return logit_rows_; }

 private:
  void choose_logit_rows(const StepPlan& plan);
  LogitRows::Range take_rows(size_t span, int row, int count);
  int padded(int rows) const;
  void add_rows(const StepPlan& plan);
  void add_pages(const StepPlan& plan);

  int block_size_, max_pages_;
  size_t max_logit_rows_;
  std::vector<int> capture_sizes_;
  Upload upload_;
  Buffer pages_;  // [max_seqs, max_pages] on the device; empty where the host computes
  std::vector<int32_t> row_start_, kv_len_, out_rows_;
  BuiltStep step_;
  LogitRows logit_rows_;
};

}  // namespace skiff
