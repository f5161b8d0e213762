#include "sample/rules.h"

namespace skiff::sample {

// The OpenAI API's two penalties: presence once, frequency once per occurrence in the output.
void penalize_presence(const SamplingParams& params, Penalty& penalty) {
  penalty.once += params.presence;
  penalty.each += params.frequency;
}

}  // namespace skiff::sample
