// ERNIE 4.5, dense: rope rotates neighbouring dimensions. Torch and Paddle checkpoints spell the
// architecture differently.
#include "model/family.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config, {.max_context = 131072,
                                       .kv_heads = 2,
                                       .head_dim = 128,
                                       .rope_theta = 5e5,
                                       .eps = 1e-5,
                                       .tied_head = true});
  const bool bias = config.get<bool>("use_bias", false);
  for (Layer& layer : spec.layers) {
    auto& m = std::get<Gqa>(layer.mixer);
    m.rope.interleaved = true;
    m.qkv_bias = m.out_bias = bias;
    std::get<Dense>(layer.ffn).bias = bias;
  }
  return spec;
}

}  // namespace

extern const Family kErnie45{"Ernie4_5ForCausalLM", describe, hf_names};
extern const Family kErnie45Paddle{"Ernie4_5_ForCausalLM", describe, hf_names};

}  // namespace skiff::model
