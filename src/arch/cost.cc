#include <algorithm>

#include "arch/spec.h"

namespace skiff {
namespace {

double attention_weights(const ModelSpec& spec, const Gqa& m) {
  return static_cast<double>(spec.hidden) * m.head_dim * (2 * m.heads + 2 * m.kv_heads);
}

double ffn_weights(const ModelSpec& spec, const Layer& layer) {
  if (const auto* dense = std::get_if<Dense>(&layer.ffn)) return 3.0 * spec.hidden * dense->width;
  const Moe& moe = std::get<Moe>(layer.ffn);
  return static_cast<double>(spec.hidden) *
         (3.0 * moe.width * moe.router.top_k + 3.0 * moe.shared_width + moe.router.experts);
}

}  // namespace

double active_parameters(const ModelSpec& spec) {
  double count = static_cast<double>(spec.vocab) * spec.hidden;
  for (const Layer& layer : spec.layers)
    count += attention_weights(spec, std::get<Gqa>(layer.mixer)) + ffn_weights(spec, layer);
  return count;
}

// A weight costs a multiplication and an addition; a token looked at, two of each per element of
// each head: one for the score and one for the value.
int doubling_context(const ModelSpec& spec) {
  double per_token = 0;
  for (const Layer& layer : spec.layers) {
    const Gqa& m = std::get<Gqa>(layer.mixer);
    per_token += 4.0 * m.heads * m.head_dim;
  }
  if (per_token == 0) return 0;
  return static_cast<int>(std::clamp(2 * active_parameters(spec) / per_token, 1.0, 1e9));
}

}  // namespace skiff
