// Qwen3's mixtures of experts (30B-A3B, 235B-A22B).
#include <algorithm>

#include "model/family.h"

namespace skiff {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config);
  const bool bias = config.get<bool>("attention_bias", false);
  for_each_gqa(spec, [&](Gqa& m) {
    m.qk_norm = true;
    m.qkv_bias = m.out_bias = bias;
  });
  qwen_windows(spec, config, 0);
  const char* count = config.has("num_experts") ? "num_experts" : "num_local_experts";
  const int experts = get_int(config, count, 128, 1, kMaxExperts);
  const Moe moe{.router = {.experts = experts,
                           .top_k = get_int(config, "num_experts_per_tok", 8, 1, experts),
                           .renorm = config.get<bool>("norm_topk_prob", false)},
                .width = need_int(config, "moe_intermediate_size", 1, kMaxWidth)};
  const int step = get_int(config, "decoder_sparse_step", 1, 1, kMaxLayers);
  const auto dense = config.get<std::vector<int>>("mlp_only_layers", {});
  for (int i = 0; i < std::ssize(spec.layers); ++i)
    if ((i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end())
      spec.layers[static_cast<size_t>(i)].ffn = moe;
  return spec;
}

}  // namespace

extern const Family kQwen3Moe{"Qwen3MoeForCausalLM", describe, hf_names};

}  // namespace skiff
