#include "sample/rules.h"

namespace skiff::sample {

// The OpenAI API's two penalties: presence once, frequency once per occurrence in the output.
float presence_amount(const SamplingParams& params, const SlotState::Count& count) {
  if (count.output == 0) return 0;
  return -(params.presence + params.frequency * static_cast<float>(count.output));
}

}  // namespace skiff::sample
