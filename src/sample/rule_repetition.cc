#include "sample/rules.h"

namespace skiff {

// Keskar et al. 2019 (CTRL), section 4.1, with the sign-aware form that became usual: what has
// been seen, in prompt or output, moves down by the same factor whether its logit is positive
// or negative.
void discourage_repetition(const SlotState& slot, EditList& edits) {
  const float divisor = slot.params().repetition;
  if (divisor == 1) return;
  for (const auto& [token, count] : slot.counts()) edits.divide(token, divisor);
}

}  // namespace skiff
