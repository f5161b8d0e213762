// engine/batch_builder.h -- a StepPlan as kernels see it, in memory allocated once.
#pragma once
#include <span>
#include <vector>

#include "message/step.h"
#include "ops/batch.h"
#include "sched/scheduler.h"

namespace skiff {

// What the rows of logits are for. First comes one row for each span that samples, in the order
// of the plan; then the rows that check drafts; then those for prompt log-probabilities.
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

// Host memory. Not thread-safe.
class BatchBuilder {
 public:
  // Room for the largest step that `limits` allows.
  BatchBuilder(const Limits& limits, int block_size);
  // last[slot] stands for kOnDevice. The results are valid until the next call.
  const RaggedBatch& build(const StepPlan& plan, std::span<const Token> last);
  const LogitRows& logit_rows() const { return logit_rows_; }

 private:
  void add_rows(const StepPlan& plan, std::span<const Token> last);
  void add_pages(const StepPlan& plan);
  void choose_logit_rows(const StepPlan& plan);
  LogitRows::Range take_rows(size_t span, int row, int count);

  int block_size_;
  std::vector<int32_t> tokens_, positions_, row_start_, kv_len_, pages_, out_rows_;
  RaggedBatch batch_;
  LogitRows logit_rows_;
};

}  // namespace skiff
