// Qwen 1.5, 2 and 2.5: Llama with biases on q, k and v, and windows on the upper layers.
#include "model/family.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config, {.max_context = 32768, .kv_heads = 32});
  for_each_gqa(spec, [](Gqa& m) { m.qkv_bias = true; });
  qwen_windows(spec, config);
  return spec;
}

}  // namespace

extern const Family kQwen2{"Qwen2ForCausalLM", describe, hf_names};

}  // namespace skiff::model
