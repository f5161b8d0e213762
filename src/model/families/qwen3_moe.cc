// Qwen3's mixtures of experts (30B-A3B, 235B-A22B).
#include <algorithm>

#include "model/family.h"

namespace skiff::model {
namespace {

std::vector<int> dense_layers(const Fields& config) {
  constexpr std::string_view kKey = "mlp_only_layers";
  std::vector<int> layers;
  if (!config.has(kKey)) return layers;
  for (const Json& value : config.need<std::vector<Json>>(kKey)) {
    const std::optional<int> layer = int_in(value, 0, kMaxLayers);
    if (!layer)
      fail_load("{}: \"{}\" holds {}, not the number of a layer", config.where(), kKey,
                value.dump().substr(0, 80));
    layers.push_back(*layer);
  }
  return layers;
}

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config, {.max_context = 32768, .kv_heads = 4});
  const bool bias = config.get<bool>("attention_bias", false);
  // Unlike in Qwen2 and Qwen3 every layer has the window: transformers ignores max_window_layers
  // and layer_types here.
  const int window = qwen_window(config);
  for_each_gqa(spec, [&](Gqa& m) {
    m.qk_norm = true;
    m.qkv_bias = m.out_bias = bias;
    m.window = window;
  });
  const char* count = config.has("num_experts") ? "num_experts" : "num_local_experts";
  const int experts = get_int(config, count, 128, 1, kMaxExperts);
  const Moe moe{.router = {.experts = experts,
                           .top_k = get_int(config, "num_experts_per_tok", 8, 1, experts),
                           .renorm = config.get<bool>("norm_topk_prob", false)},
                .width = need_int(config, "moe_intermediate_size", 1, kMaxWidth)};
  const int step = get_int(config, "decoder_sparse_step", 1, 1, kMaxLayers);
  const std::vector<int> dense = dense_layers(config);
  for (int i = 0; i < std::ssize(spec.layers); ++i)
    if ((i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end())
      spec.layers[static_cast<size_t>(i)].ffn = moe;
  return spec;
}

}  // namespace

extern const Family kQwen3Moe{"Qwen3MoeForCausalLM", describe, hf_names};

}  // namespace skiff::model
