// engine/step_frame.h -- one step between its plan and its result: its batch, its rows of logits,
// and its draw.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "comm/row_exchange.h"
#include "ops/ops.h"
#include "sample/sampler.h"

namespace skiff::engine {

// The rows of logits that a step computes, in this order: rows of the first draw, drafts that are
// checked depth by depth, rows for prompt log-probabilities, rows that are pooled, padding.
struct LogitRows {
  // Consecutive rows, both in the step and in the logits.
  struct Range {
    size_t span = 0;
    int row = 0;    // the first row of the step
    int begin = 0;  // its row of logits
    int count = 0;
  };
  std::vector<sample::DrawRow> drawn;  // entry i describes the draw from row i of the logits
  std::vector<size_t> drawn_by;        // the index of the span of each entry of `drawn`
  size_t num_sampled = 0;              // leading rows of `drawn`: one for each span that samples
  std::vector<Range> by_depth, prompts;
  int pools = 0;  // the logits of the first row that is pooled; the others follow it
};

// Returns the sampling parameters of the first n rows.
inline SampleBatch first_rows(SampleBatch batch, int64_t n) {
  for (Tensor* column :
       {&batch.temperature, &batch.top_p, &batch.min_p, &batch.top_k, &batch.seed, &batch.draw})
    *column = column->row_range(0, n);
  return batch;
}

// A value that a flight owns from the launch of its step to the end. Data for the device lies in an
// upload of the BatchBuilder, which keeps the memory of two steps.
struct StepFrame {
  RaggedBatch batch;  // its tensors are filled once begin_step() has copied the arrivals
  std::array<Arrival, 2> arrivals;
  std::optional<ReplayKey> key;                  // set if the step may be recorded
  std::optional<comm::RowsOfRanks> shared_rows;  // set if the step is a part of a round
  // Forward pass, draw and verdicts may be recorded as one: the step is chained, nothing of its
  // draws needs the host, and all its arrays have the sizes of the recorded step.
  bool whole = false;
  LogitRows rows;
  // [num_sampled] i32: the slots whose next tokens are drawn. In recorded steps that are chained,
  // and in those of a drafter, [num_seqs], with -1 behind them.
  Tensor slots;
  sample::DrawColumns columns;  // the sampling parameters of rows.drawn
  sample::PendingDraw draw;     // set once the draw has been started
  DraftVerdicts verdicts;       // `drawn` is set once the draw has been started; if chained

  // Clears the step but keeps the memory of its lists.
  void clear() {
    rows.drawn.clear();
    rows.drawn_by.clear();
    rows.by_depth.clear();
    rows.prompts.clear();
    *this = {.rows = std::move(rows)};
    rows.num_sampled = 0;
  }
};

}  // namespace skiff::engine
