// arch/cost.h -- what a decoder costs: weights, KV cache and arithmetic. Each mixer and
// feed-forward kind of arch/spec.h gives its answers in cost.cc.
#pragma once
#include <cstdint>

#include "arch/spec.h"

namespace skiff {

// What the KV cache holds of one token in one layer: `tensors` (keys and values: 2) of
// [kv_heads, head_dim] elements each.
struct KvShape {
  int tensors = 0, kv_heads = 0, head_dim = 0;
};
KvShape kv_shape(const Layer& layer);
// The elements of a KvShape, of one layer and of all.
int64_t kv_elements(const Layer& layer);
int64_t kv_elements(const ModelSpec& spec);

// Floating-point operations that attention does for one row and one position that it looks at.
double attention_flops(const Layer& layer);
double attention_flops(const ModelSpec& spec);

// Weights that one token is multiplied by: of a mixture of experts only the chosen ones; the head,
// but no row of the embedding.
double active_parameters(const ModelSpec& spec);

// Weights that `rows` tokens in one step are multiplied by: of the experts, as many as the tokens
// are expected to choose together.
double touched_parameters(const ModelSpec& spec, int rows);

// The number of positions at which a row's attention costs as much arithmetic as all its weights.
int doubling_context(const ModelSpec& spec);

}  // namespace skiff
