// DeepSeek-V3's module that predicts the token after the next (DeepSeek-AI 2024, "DeepSeek-V3",
// 2.2): the layer behind the last of the checkpoint, behind a projection of embedding and hidden
// row. Its copies of embedding and head equal the served model's and are not read.
#include "model/families/deepseek.h"

namespace skiff::model {

extern const Family kDeepseekV3;

namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = kDeepseekV3.describe(config);
  if (spec.extra_layers == 0)
    fail_load("{}: \"num_nextn_predict_layers\" is 0: the checkpoint has no MTP layer",
              config.where());
  spec.first_layer = static_cast<int>(spec.layers.size());
  spec.layers = {spec.layers.back()};
  spec.extra_layers = 0;
  spec.tied_head = false;
  spec.joins = true;
  return spec;
}

std::vector<NameRule> names() {
  std::vector<NameRule> rules = deepseek_names();
  for (const std::string_view slot : {"embed", "norm", "head"})
    std::erase_if(rules, [slot](const NameRule& rule) { return rule.slot == slot; });
  rules.insert(rules.end(), {
                                {"token_norm", "model.layers.{}.enorm"},
                                {"hidden_norm", "model.layers.{}.hnorm"},
                                {"join", "model.layers.{}.eh_proj"},
                                {"norm", "model.layers.{}.shared_head.norm"},
                            });
  return rules;
}

}  // namespace

extern const Family kDeepseekV3Mtp{"DeepSeekMTPModel", describe, names};

}  // namespace skiff::model
