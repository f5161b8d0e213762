// draft/methods.h -- the table of methods. A new one is a file and a line here.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "draft/drafter.h"
#include "draft/settings.h"

namespace skiff::draft {

struct Method {
  std::string_view name;
  std::unique_ptr<Drafter> (*make)(const Settings& settings);
};

std::span<const Method> methods();
// Methods whose drafts come from a model that is computed beside the one that they are for
// (engine/model_drafter.h).
inline constexpr std::string_view kDraftModel = "draft_model", kMtp = "mtp", kEagle = "eagle",
                                  kEagle3 = "eagle3";
inline constexpr std::string_view kWithWeights[] = {kDraftModel, kMtp, kEagle, kEagle3};
bool has_weights(std::string_view method);

// Null if there is no method of that name. Those with weights are not among methods().
const Method* find_method(std::string_view name);

}  // namespace skiff::draft
