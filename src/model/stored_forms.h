// model/stored_forms.h -- in which form a checkpoint has each weight, for the memory plan: found in
// the headers of its files, before any value is read.
#pragma once
#include <string>
#include <vector>

#include "model/config.h"
#include "model/slot_cut.h"
#include "model/slots.h"

namespace skiff::model {

// Returns whether there are files with weights, and not only configuration.
bool has_weight_files(const std::string& dir);

// Returns the form of each slot of config.spec, or of a rank's part of it; nothing where the
// checkpoint is not quantized. Without weight files, the forms are those that the configuration
// asks for. Throws LoadErrors, as find_sources does, and where the size of the group does not fit.
std::vector<StoredForm> stored_forms(const std::string& dir, const ModelConfig& config,
                                     const RankOf& part = {});

// Returns whether the shared experts of the checkpoint cannot be members of the stack of routed
// ones: they are in another format, or they are several, which are stored as one wide expert, and
// the scale of a token's activations is one for all of its inputs, not one for each of them.
bool shared_experts_differ(const std::string& dir, const ModelConfig& config);

}  // namespace skiff::model
