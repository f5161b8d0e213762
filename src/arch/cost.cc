#include <algorithm>
#include <cmath>

#include "arch/spec.h"

namespace skiff {
namespace {

double attention_weights(const ModelSpec& spec, const Gqa& m) {
  return static_cast<double>(spec.hidden) * m.head_dim * (2 * m.heads + 2 * m.kv_heads);
}

// How many experts `rows` tokens are expected to choose among them, if all are as likely.
double chosen_experts(const Router& router, int rows) {
  const double share = static_cast<double>(router.top_k) / router.experts;
  return router.experts * (1 - std::pow(1 - share, rows));
}

double ffn_weights(const ModelSpec& spec, const Layer& layer, int rows) {
  if (const auto* dense = std::get_if<Dense>(&layer.ffn)) return 3.0 * spec.hidden * dense->width;
  const Moe& moe = std::get<Moe>(layer.ffn);
  const double experts = chosen_experts(moe.router, rows) + moe.router.always;
  return static_cast<double>(spec.hidden) *
         (3.0 * moe.width * experts + 3.0 * moe.shared_width + moe.router.experts);
}

}  // namespace

double active_parameters(const ModelSpec& spec) { return touched_parameters(spec, 1); }

double touched_parameters(const ModelSpec& spec, int rows) {
  double count = static_cast<double>(spec.vocab) * spec.hidden;
  for (const Layer& layer : spec.layers)
    count += attention_weights(spec, std::get<Gqa>(layer.mixer)) + ffn_weights(spec, layer, rows);
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
