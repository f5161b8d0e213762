#include "sample/rules.h"

namespace skiff {

void bias_logits(const SlotState& slot, EditList& edits) {
  for (const auto& [token, bias] : slot.params().logit_bias) edits.add(token, bias);
}

}  // namespace skiff
