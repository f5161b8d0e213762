// DeepSeek's first mixture of experts (deepseek-moe-16b): Llama's attention beside many small
// experts and a shared one (DeepSeek-AI 2024, "DeepSeekMoE"). Its dense models are Llamas.
#include "model/families/deepseek.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config, {.max_context = 2048});
  const bool bias = config.get<bool>("attention_bias", false);
  for_each_gqa(spec, [&](Gqa& m) { m.qkv_bias = m.out_bias = bias; });
  expect_word(config, "scoring_func", "softmax");
  std::optional<Moe> moe = read_experts(config);
  if (!moe) return spec;
  moe->router.renorm = config.get<bool>("norm_topk_prob", false);
  place_experts(spec, config, *moe, 0);
  return spec;
}

}  // namespace

extern const Family kDeepseek{"DeepseekForCausalLM", describe, deepseek_names};

}  // namespace skiff::model
