// arch/cost.h -- what a decoder costs: weights, KV cache and arithmetic. Each mixer and
// feed-forward kind of arch/spec.h gives its answers in cost.cc.
#pragma once
#include <cstdint>

#include "arch/spec.h"

namespace skiff {

// The KV cache holds this of each token in one layer: `tensors` of [kv_heads, head_dim] elements,
// which are 2 where keys and values are kept apart.
struct KvShape {
  int tensors = 0, kv_heads = 0, head_dim = 0;
};
KvShape kv_shape(const Layer& layer);
// The number of elements that the KV cache holds of one token, in one layer or in all.
int64_t kv_elements(const Layer& layer);
int64_t kv_elements(const ModelSpec& spec);

// How latent attention computes rows of prompts: as decodes, or from keys and values of every head,
// which takes fewer operations for each position (Ops::latent_attend).
enum class LatentForm { kAbsorbed, kExpanded };

// The number of floating-point operations that attention does for one row and one position that
// the row attends to, in one layer or in all. What making keys and values of latents takes is left
// out.
double attention_flops(const Layer& layer, LatentForm form = LatentForm::kAbsorbed);
double attention_flops(const ModelSpec& spec, LatentForm form = LatentForm::kAbsorbed);

// The number of weights that one token is multiplied by. A mixture of experts counts only the
// chosen ones; the head counts, the embedding does not.
double active_parameters(const ModelSpec& spec);

// The number of weights that `rows` tokens in one step are multiplied by. A mixture of experts
// counts as many as the tokens are expected to choose together.
double touched_parameters(const ModelSpec& spec, int rows);

// The number of positions at which the attention of a prompt's row costs as much arithmetic as all
// its weights.
int doubling_context(const ModelSpec& spec, LatentForm form = LatentForm::kAbsorbed);

}  // namespace skiff
