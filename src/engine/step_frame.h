// engine/step_frame.h -- one step between its plan and its result: what is computed, for whom, and
// what is drawn.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "ops/ops.h"
#include "sample/sampler.h"

namespace skiff::engine {

// Rows of logits that a step computes, and for whom. They lie in this order: the rows of the first
// draw, drafts that are checked depth by depth, what prompts report, padding.
struct LogitRows {
  // Rows that follow each other, in the step and in the logits.
  struct Range {
    size_t span = 0;
    int row = 0;    // the first of the step's rows
    int begin = 0;  // its row of logits
    int count = 0;
  };
  std::vector<sample::DrawRow> drawn;  // row i of the logits is drawn from as drawn[i] says
  std::vector<size_t> drawn_by;        // parallel to it: spans
  size_t num_sampled = 0;              // leading rows of `drawn`: one for each span that samples
  std::vector<Range> by_depth, prompts;
};

// A value: a flight owns it from the launch of its step to the end. What arrives on the device lies
// in an upload of the BatchBuilder, which keeps the memory of two steps.
struct StepFrame {
  RaggedBatch batch;  // tensors are in place once begin_step has brought what arrives
  std::array<Arrival, 2> arrivals;
  std::optional<ReplayKey> key;  // of a step that may be recorded
  LogitRows rows;
  Tensor slots;              // [num_sampled] i32: whose tokens are drawn
  SampleBatch columns;       // of rows.drawn
  sample::PendingDraw draw;  // once asked for

  // Forgets the step and keeps the memory of lists.
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
