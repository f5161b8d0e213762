// DeepSeek-V2 and V2-Lite, and V2.5 and Coder-V2 of their shape: latent attention, and experts that
// are chosen by softmax, among all or among those of the groups with the best single expert.
#include "base/log.h"
#include "model/families/deepseek.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = without_mixers(config, {.max_context = 2048});
  const Mla mla = read_mla(config, spec.max_context);
  for (Layer& layer : spec.layers) layer.mixer = mla;
  expect_word(config, "scoring_func", "softmax");
  std::optional<Moe> moe = read_experts(config);
  if (!moe) return spec;
  Router& router = moe->router;
  const auto method = config.get<std::string>("topk_method", "greedy");
  if (method == "group_limited_greedy")
    router.groups = read_groups(config, router, ExpertGroups::kBest);
  else if (method != "greedy")
    fail_load("{}: \"topk_method\" \"{}\" is not supported; known: greedy, group_limited_greedy",
              config.where(), escaped(method));
  // The published code then leaves the factor out, and transformers leaves the division out.
  if (config.get<bool>("norm_topk_prob", false))
    fail_load("{}: \"norm_topk_prob\" true is not supported: implementations disagree on it",
              config.where());
  router.renorm = false;
  router.factor = static_cast<float>(get_number(config, "routed_scaling_factor", 1, 0, 1e6));
  place_experts(spec, config, *moe, 0);
  return spec;
}

}  // namespace

extern const Family kDeepseekV2{"DeepseekV2ForCausalLM", describe, deepseek_names};

}  // namespace skiff::model
