// model/weights.h -- the weights of a decoder, in the shape of its ModelSpec: each mixer and
// feed-forward kind of arch/spec.h has its own.
#pragma once
#include <variant>
#include <vector>

#include "arch/spec.h"
#include "weights/linear.h"

namespace skiff::model {

template <class Kind>
struct Weights;

template <>
struct Weights<Gqa> {
  Linear qkv, out;
  Norm q_norm, k_norm;  // empty unless Gqa::qk_norm
};

template <>
struct Weights<Mla> {
  // Projects the input to its latents: with Mla::q_rank first that of the queries, then in any case
  // what the cache holds.
  Linear latent;
  Norm q_norm;  // empty without Mla::q_rank
  Linear q;     // projects the latent of the queries, or else the input
  Norm kv_norm;
  Linear absorb;  // a stack that projects a head's nope_dim elements of q to kv_rank
  Linear value;   // a stack that projects a head's kv_rank elements to v_dim
  Linear out;
};

template <>
struct Weights<Dense> {
  Linear gate_up, down;
};

template <>
struct Weights<Moe> {
  Linear router;
  Tensor router_bias;     // [experts] f32; empty unless Router::bias
  Linear gate_up, down;   // stacks: the routed experts, then those always on
  Weights<Dense> shared;  // empty unless Moe::shared_width
};

using GqaWeights = Weights<Gqa>;
using MlaWeights = Weights<Mla>;
using DenseWeights = Weights<Dense>;
using MoeWeights = Weights<Moe>;

// The mixer and the feed-forward weights are of the same kinds as those of the layer in the spec.
struct LayerWeights {
  Norm mixer_norm, ffn_norm;
  std::variant<GqaWeights, MlaWeights> mixer;
  std::variant<DenseWeights, MoeWeights> ffn;
};

struct ModelWeights {
  Tensor embed;  // [vocab, hidden], compute dtype
  Norm norm;
  Linear head;
  Linear score_inner;  // before the head; empty without ModelSpec::score_width
  std::vector<LayerWeights> layers;
  // With ModelSpec::joins: norms of the embedding and of the hidden row, empty with
  // ModelSpec::kPlain; and the projection of both, the embedding first, or with kBeside of the
  // served model's rows. The embedding is a view of the served model's, and so is the head but with
  // kBeside.
  Norm token_norm, hidden_norm;
  Linear join;
};

// The fixed scales of a layer's keys and values: bf16 [kv_heads], where Ops computes.
struct FixedKvScales {
  Tensor k, v;
};

// Returns empty weights of the kinds that `spec` has.
ModelWeights empty_weights(const ModelSpec& spec);

}  // namespace skiff::model
