// engine/round.h -- what replicas that share experts know of each other's rows before a pass.
#pragma once
#include "message/step.h"

namespace skiff::engine {

// A replica's part in a round of a Lockstep.
struct RoundPart {
  int seqs = 0, rows = 0;
  int rows_per_seq = 0;  // 0: not the same for all; without rows it says nothing
  bool operator==(const RoundPart&) const = default;
};

inline RoundPart part_of(const StepPlan& plan) {
  return {.seqs = static_cast<int>(plan.spans.size()),
          .rows = static_cast<int>(plan.tokens.size()),
          .rows_per_seq = plan.rows_per_seq()};
}

}  // namespace skiff::engine
