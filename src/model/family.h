// model/family.h -- how a checkpoint's config.json and tensor names become a ModelSpec and its
// weights. A family is one short file in families/ plus one line in registry.cc.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"

namespace skiff {

// Says which checkpoint tensors fill a slot of ModelWeights. `pattern` has {} for the layer and,
// for experts, a second {} for the expert; several patterns joined by '|' are stacked along the
// output axis (q|k|v, gate|up). Rules are tried in order: a slot may have several spellings, the
// first whose tensors are all present wins.
struct NameRule {
  std::string_view slot;     // "embed", "norm", "head", or a field of LayerWeights
  std::string_view pattern;  // "model.layers.{}.self_attn.q_proj|...k_proj|...v_proj"
};

struct Family {
  std::string_view arch;  // config.json "architectures"[0]
  ModelSpec (*describe)(const Fields& config);  // may throw LoadError
  std::vector<NameRule> (*names)();
};

// What families share; each family edits the result.
ModelSpec llama_like(const Fields& config);
// The tensor names that nearly every family shares, torch spelling and Paddle spelling.
std::vector<NameRule> hf_names();

const Family* find_family(std::string_view arch);  // nullptr if unknown
std::vector<std::string_view> known_architectures();

}  // namespace skiff
