// engine/resolve.h -- turns a user's options into the settings that a model runs with.
#pragma once
#include <string_view>

#include "engine/config.h"
#include "engine/resolved.h"

namespace skiff::engine {

constexpr double kBytesPerGb = 1 << 30;

// Reads the model that `config` names. Shared experts become a block of their own where they have
// another format than the routed ones.
model::ModelConfig read_model(const EngineConfig& config);

// Replaces every "automatic" of `config` by what it means for this model on this machine (see the
// comments of EngineConfig). Throws LoadError, naming the flag, for values out of range or beyond
// the model.
Resolved resolve(const EngineConfig& config, const model::ModelConfig& model);

// Returns the device that "auto", "cpu", "reference", "cuda", "gpu" or "cuda:N" stands for on this
// machine. Throws LoadError for any other word.
ComputeDevice device_named(std::string_view word);

}  // namespace skiff::engine
