#include "sample/rules.h"

namespace skiff::sample {

void bias_logits(const SamplingParams& params, std::vector<Edit>& biases) {
  biases.reserve(biases.size() + params.logit_bias.size());
  for (const auto& [token, bias] : params.logit_bias) biases.push_back({token, bias});
}

}  // namespace skiff::sample
