#include "sample/rules.h"

namespace skiff::sample {

// Keskar et al. 2019 (CTRL), section 4.1, with the sign-aware form that became usual: what has
// been seen, in prompt or output, moves down by the same factor whether its logit is positive
// or negative.
float repetition_divisor(const SamplingParams& params) { return params.repetition; }

}  // namespace skiff::sample
