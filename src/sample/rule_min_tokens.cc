#include "sample/rules.h"

namespace skiff::sample {

void hold_back_stop(const SlotState& slot, std::vector<Token>& banned) {
  if (slot.output_count() >= slot.params().min_tokens) return;
  banned.insert(banned.end(), slot.stop_tokens().begin(), slot.stop_tokens().end());
}

}  // namespace skiff::sample
