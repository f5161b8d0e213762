// sample/pending_logprobs.h -- log-probabilities that a device computes.
#pragma once
#include <vector>

#include "message/request.h"
#include "ops/ops.h"
#include "ops/pinned_arena.h"

namespace skiff::sample {

// Log-probabilities that are being computed, in host memory that may be read after a wait.
struct PendingLogprobs {
  std::vector<int32_t> rows;  // their rows of logits
  int top = 0;
  Tensor tokens, logprob, rank;  // [rows]
  Tensor top_ids, top_logprobs;  // [rows, top]; empty where top is 0
  // [rows, vocab] f32: read() gives these logits instead, over the temperature of their row where
  // there is one, and -inf where the log-probability is.
  Tensor logits = {};
  std::vector<float> temperature = {};  // one for each row, or none
};

// Starts computing the log-probabilities of group.tokens under `logits`, which has one row for each
// of group.rows, and of the best tokens of each row. The results lie in `memory`.
void look_up(Ops& ops, PinnedArena& memory, PendingLogprobs& group, Tensor logits);

std::vector<PositionLogprobs> read(const PendingLogprobs& group);

}  // namespace skiff::sample
