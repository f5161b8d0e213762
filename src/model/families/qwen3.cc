// Qwen3: a norm on every q and k head instead of Qwen2's biases.
#include "model/family.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config, {.max_context = 32768, .kv_heads = 32, .head_dim = 128});
  const bool bias = config.get<bool>("attention_bias", false);
  for_each_gqa(spec, [&](Gqa& m) {
    m.qk_norm = true;
    m.qkv_bias = m.out_bias = bias;
  });
  qwen_windows(spec, config);
  return spec;
}

}  // namespace

extern const Family kQwen3{"Qwen3ForCausalLM", describe, hf_names};

}  // namespace skiff::model
