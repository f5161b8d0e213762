#include "arch/cost.h"

#include <algorithm>
#include <cmath>

namespace skiff {
namespace {

KvShape kv(const Gqa& m) { return {.tensors = 2, .kv_heads = m.kv_heads, .head_dim = m.head_dim}; }

KvShape kv(const Mla& m) { return {.tensors = 1, .kv_heads = 1, .head_dim = m.cached_dim()}; }

// Score and value each take a multiplication and an addition per element of every head.
double flops(const Gqa& m, LatentForm /*form*/) { return 4.0 * m.heads * m.head_dim; }

double flops(const Mla& m, LatentForm form) {
  const int elements =
      form == LatentForm::kAbsorbed ? m.cached_dim() + m.kv_rank : m.q_dim() + m.v_dim;
  return 2.0 * m.heads * elements;
}

double weights(const Gqa& m, double hidden, int /*rows*/) {
  return hidden * m.head_dim * (2 * m.heads + 2 * m.kv_heads);
}

double weights(const Mla& m, double hidden, int /*rows*/) {
  const double q = 1.0 * m.heads * m.q_dim();
  const double queries = m.q_rank ? m.q_rank * (hidden + q) : hidden * q;
  const double latent = hidden * m.cached_dim();
  return queries + latent + m.heads * (1.0 * m.kv_rank * (m.nope_dim + m.v_dim) + hidden * m.v_dim);
}

double weights(const Dense& f, double hidden, int /*rows*/) { return 3.0 * hidden * f.width; }

// The expected number of experts here that `rows` tokens choose, if every expert is equally likely.
double chosen_experts(const Router& router, int rows) {
  const double share = static_cast<double>(router.top_k) / router.experts;
  return router.here() * (1 - std::pow(1 - share, rows));
}

double weights(const Moe& f, double hidden, int rows) {
  const double experts = chosen_experts(f.router, rows) + f.router.always;
  return hidden * (3.0 * f.width * experts + 3.0 * f.shared_width + f.router.experts);
}

}  // namespace

KvShape kv_shape(const Layer& layer) {
  return std::visit([](const auto& mixer) { return kv(mixer); }, layer.mixer);
}

int64_t kv_elements(const Layer& layer) {
  const KvShape shape = kv_shape(layer);
  return int64_t{shape.tensors} * shape.kv_heads * shape.head_dim;
}

int64_t kv_elements(const ModelSpec& spec) {
  int64_t sum = 0;
  for (const Layer& layer : spec.layers) sum += kv_elements(layer);
  return sum;
}

double attention_flops(const Layer& layer, LatentForm form) {
  return std::visit([&](const auto& mixer) { return flops(mixer, form); }, layer.mixer);
}

double attention_flops(const ModelSpec& spec, LatentForm form) {
  double sum = 0;
  for (const Layer& layer : spec.layers) sum += attention_flops(layer, form);
  return sum;
}

double active_parameters(const ModelSpec& spec) { return touched_parameters(spec, 1); }

double touched_parameters(const ModelSpec& spec, int rows) {
  double count = static_cast<double>(spec.vocab) * spec.hidden;
  const auto add = [&](const auto& kind) { count += weights(kind, spec.hidden, rows); };
  for (const Layer& layer : spec.layers) {
    std::visit(add, layer.mixer);
    std::visit(add, layer.ffn);
  }
  return count;
}

// Each weight costs a multiplication and an addition.
int doubling_context(const ModelSpec& spec, LatentForm form) {
  const double flops = attention_flops(spec, form);
  if (flops == 0) return 0;
  return static_cast<int>(std::clamp(2 * active_parameters(spec) / flops, 1.0, 1e9));
}

}  // namespace skiff
