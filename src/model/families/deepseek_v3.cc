// DeepSeek-V3, V3.1 and R1 (DeepSeek-AI 2024, "DeepSeek-V3"): experts are scored by sigmoid, a
// correction bias takes part in choosing, and groups are judged by their two best. Layers behind
// the last predict further tokens (MTP).
#include "model/families/deepseek.h"

namespace skiff::model {
namespace {

constexpr int kMaxMtp = 64;

ModelSpec describe(const Fields& config) {
  ModelSpec spec = without_mixers(config, {.max_context = 4096});
  const Mla mla = read_mla(config, spec.max_context);
  for (Layer& layer : spec.layers) layer.mixer = mla;
  spec.extra_layers = get_int(config, "num_nextn_predict_layers", 1, 0, kMaxMtp);
  expect_word(config, "scoring_func", "sigmoid");
  expect_word(config, "topk_method", "noaux_tc");
  std::optional<Moe> moe = read_experts(config);
  if (!moe) return spec;
  Router& router = moe->router;
  router.score = Router::kSigmoid;
  router.bias = true;
  router.groups = read_groups(config, router, ExpertGroups::kTwoBest);
  router.renorm = config.get<bool>("norm_topk_prob", true);
  router.factor = static_cast<float>(get_number(config, "routed_scaling_factor", 2.5, 0, 1e6));
  place_experts(spec, config, *moe, 3);
  return spec;
}

}  // namespace

extern const Family kDeepseekV3{"DeepseekV3ForCausalLM", describe, deepseek_names};

}  // namespace skiff::model
