// Llama 1, 2, 3 and 3.1, and the many models that publish under its name.
#include "model/family.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config, {.max_context = 2048});
  const bool attention_bias = config.get<bool>("attention_bias", false);
  const bool mlp_bias = config.get<bool>("mlp_bias", false);
  for (Layer& layer : spec.layers) {
    auto& m = std::get<Gqa>(layer.mixer);
    m.qkv_bias = m.out_bias = attention_bias;
    std::get<Dense>(layer.ffn).bias = mlp_bias;
  }
  return spec;
}

}  // namespace

extern const Family kLlama{"LlamaForCausalLM", describe, hf_names};

}  // namespace skiff::model
