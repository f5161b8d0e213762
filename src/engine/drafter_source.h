// engine/drafter_source.h -- which model drafts for the one that is served, found at start-up.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "draft/settings.h"
#include "model/loader.h"
#include "model/memory_plan.h"

namespace skiff::engine {

// What loads a drafter (engine/model_drafter.h). It computes with the dtypes of the served model.
struct DrafterSource {
  std::string folder;
  model::ModelConfig config;
  std::vector<model::StoredForm> stored;  // the slots' forms in a quantized checkpoint, or empty
};

// Reads the drafter that `settings` name, for `model` in `folder`. Throws a LoadError where its
// vocabulary has another size, or where it cannot be computed beside the model. Returns nothing for
// methods without weights.
std::optional<DrafterSource> find_drafter(const draft::Settings& settings,
                                          const std::string& folder,
                                          const model::ModelConfig& model,
                                          const Precision& precision);

// Returns the spec with the drafter's layers behind its own: those that a cached block has.
ModelSpec cached_spec(const ModelSpec& spec, const std::optional<DrafterSource>& drafter);

}  // namespace skiff::engine
