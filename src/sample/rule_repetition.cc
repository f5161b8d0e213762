#include "sample/rules.h"

namespace skiff::sample {

// Keskar et al. 2019 (CTRL), section 4.1, in the sign-aware form that became usual: the logit of a
// token that occurs in prompt or output is lowered by the same factor whether it is positive or
// negative.
void penalize_repetition(const SamplingParams& params, Penalty& penalty) {
  penalty.divide *= params.repetition;
}

}  // namespace skiff::sample
