// Mixtral: Mistral's attention, and experts under names of their own.
#include "model/family.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec =
      llama_like(config, {.max_context = 131072, .kv_heads = 8, .rope_theta = 1e6, .eps = 1e-5});
  const int window =
      config.has("sliding_window") ? need_int(config, "sliding_window", 1, 1 << 30) : 0;
  const int experts = get_int(config, "num_local_experts", 8, 1, kMaxExperts);
  const Moe moe{.router = {.experts = experts,
                           .top_k = get_int(config, "num_experts_per_tok", 2, 1, experts)},
                .width = std::get<Dense>(spec.layers[0].ffn).width};
  for_each_gqa(spec, [&](Gqa& m) { m.window = window; });
  for (Layer& layer : spec.layers) layer.ffn = moe;
  return spec;
}

std::vector<NameRule> names() {
  std::vector<NameRule> rules = hf_names();
  rules.insert(rules.end(), {
                                {"router", "model.layers.{}.block_sparse_moe.gate"},
                                {"expert_gate_up",
                                 "model.layers.{}.block_sparse_moe.experts.{}.w1|model.layers.{}."
                                 "block_sparse_moe.experts.{}.w3"},
                                {"expert_down", "model.layers.{}.block_sparse_moe.experts.{}.w2"},
                            });
  return rules;
}

}  // namespace

extern const Family kMixtral{"MixtralForCausalLM", describe, names};

}  // namespace skiff::model
