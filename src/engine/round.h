// engine/round.h -- what replicas that share experts know of each other's rows before a pass.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "message/step.h"

namespace skiff::engine {

// A replica's part in a round of a Lockstep.
struct RoundPart {
  int seqs = 0, rows = 0;
  int rows_per_seq = 0;  // 0: not the same for all; without rows it says nothing
  // The most rows of a sequence, if each has one and its drafts, and no prompt log-probabilities
  // are requested; else 0.
  int most_per_seq = 0;
  bool operator==(const RoundPart&) const = default;
};

inline RoundPart part_of(const StepPlan& plan) {
  const bool decodes = std::ranges::all_of(plan.spans, [](const Span& span) {
    return span.sample && span.count == 1 + span.draft && span.prompt_logprobs == kNoLogprobs;
  });
  int most = 0;
  for (const Span& span : plan.spans) most = std::max(most, span.count);
  return {.seqs = static_cast<int>(plan.spans.size()),
          .rows = static_cast<int>(plan.tokens.size()),
          .rows_per_seq = plan.rows_per_seq(),
          .most_per_seq = decodes ? most : 0};
}

// Returns the most rows of a replica other than that one that computes prompts.
inline int prompt_rows_beside_of(std::span<const RoundPart> round, size_t replica) {
  int most = 0;
  for (size_t i = 0; i < round.size(); ++i)
    if (i != replica && round[i].most_per_seq == 0) most = std::max(most, round[i].rows);
  return most;
}

}  // namespace skiff::engine
