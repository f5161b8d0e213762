#include "sample/rules.h"

namespace skiff {

// The OpenAI API's two penalties: presence once, frequency once per occurrence in the output.
void penalize_presence(const SlotState& slot, EditList& edits) {
  const SamplingParams& params = slot.params();
  if (params.presence == 0 && params.frequency == 0) return;
  for (const auto& [token, count] : slot.counts()) {
    if (count.output == 0) continue;
    edits.add(token, -(params.presence + params.frequency * static_cast<float>(count.output)));
  }
}

}  // namespace skiff
