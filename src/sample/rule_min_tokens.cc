#include "sample/rules.h"

namespace skiff {

void hold_back_stop(const SlotState& slot, EditList& edits) {
  if (slot.output_count() >= slot.params().min_tokens) return;
  for (const Token token : slot.stop_tokens()) edits.ban(token);
}

}  // namespace skiff
