// model/stored_forms.h -- in which form a checkpoint has each weight, for the memory plan: found in
// the headers of its files, before any value is read.
#pragma once
#include <string>
#include <vector>

#include "model/config.h"
#include "model/slots.h"

namespace skiff::model {

// Whether there are files with weights, and not only configuration.
bool has_weight_files(const std::string& dir);

// Returns the form of each slot of config.spec; nothing where the checkpoint is not quantized.
// Without weight files, the forms are those that the configuration asks for. Throws LoadErrors, as
// find_sources does.
std::vector<StoredForm> stored_forms(const std::string& dir, const ModelConfig& config);

// Makes the experts that are always on, which are computed as members of the stack, a feed-forward
// block of their own, so that they can have another format than the routed ones.
void separate_shared_experts(ModelSpec& spec);

// Whether the checkpoint has shared experts in another format than the routed ones.
bool shared_experts_differ(const std::string& dir, const ModelConfig& config);

}  // namespace skiff::model
