// model/mtp.h -- modules that predict further tokens than the next (multi-token prediction): found
// beside a model, and loaded to share its weights.
#pragma once
#include <string>

#include "model/config.h"
#include "model/weights.h"

namespace skiff::model {

struct MtpModule {
  std::string folder;  // where its tensors are
  ModelConfig config;  // its spec joins (ModelSpec::joins)
};

// Finds the module of `served`, whose folder is `dir`: in the folder `given`, or if that is empty,
// in "mtp" of the model's folder, where ERNIE 4.5 has it, or among the model's own tensors, where
// DeepSeek-V3 has it. Throws a LoadError if the family has none, or its sizes differ.
MtpModule find_mtp(const std::string& dir, const std::string& given, const ModelConfig& served);

// Returns true if a module ends with a norm of its own and not with the served model's, if any.
bool has_own_norm(const ModelSpec& module);

// Lets a module use the embedding of `served` and, unless it has its own, the head and the last
// norm. Those weights must outlive it.
void share_weights(const ModelSpec& spec, ModelWeights& module, const ModelWeights& served);

}  // namespace skiff::model
