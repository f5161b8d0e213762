// ERNIE 4.5's mixtures of experts (21B-A3B, 300B-A47B): a correction bias takes part in choosing
// experts. A checkpoint stores all shared experts as one wide dense block, which equals the sum of
// that number of experts of the routed width.
#include "model/family.h"

namespace skiff::model {
namespace {

Moe read_moe(const Fields& config) {
  const int experts = get_int(config, "moe_num_experts", 64, 1, kMaxExperts);
  const int width = need_int(config, "moe_intermediate_size", 1, kMaxWidth);
  const int shared = get_int(config, "moe_num_shared_experts", 2, 0, kMaxWidth / width);
  const double floor = get_number(config, "moe_norm_min", 1e-12, 0, 1);
  if (floor != 1e-12)
    fail_load("{}: \"moe_norm_min\" is {}, only 1e-12 is supported", config.where(), floor);
  return {.router = {.experts = experts,
                     .top_k = get_int(config, "moe_k", 6, 1, experts),
                     .bias = true,
                     .always = shared},
          .width = width};
}

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(
      config,
      {.max_context = 131072, .kv_heads = 4, .rope_theta = 5e5, .eps = 1e-5, .tied_head = true});
  for_each_gqa(spec, [](Gqa& m) { m.rope.interleaved = true; });
  if (config.get<bool>("use_bias", false))
    fail_load("{}: \"use_bias\" true is not supported with experts", config.where());
  if (!config.get<bool>("use_moe", true)) return spec;
  const int count = static_cast<int>(spec.layers.size());
  const int first = get_int(config, "moe_layer_start_index", 1, 0, kMaxLayers);
  const int end = get_int(config, "moe_layer_end_index", -1, -1, kMaxLayers);
  const int last = end == -1 ? count - 1 : end;
  const int interval = get_int(config, "moe_layer_interval", 1, 1, kMaxLayers);
  const Moe moe = read_moe(config);
  for (int i = first; i <= last && i < count; ++i)
    if ((i + 1) % interval == 0) spec.layers[static_cast<size_t>(i)].ffn = moe;
  return spec;
}

}  // namespace

extern const Family kErnie45Moe{"Ernie4_5_MoeForCausalLM", describe, hf_names};

}  // namespace skiff::model
