// engine/resolve.h -- from what a user asked for to how a model runs.
#pragma once
#include <string_view>

#include "engine/config.h"
#include "engine/resolved.h"

namespace skiff::engine {

constexpr double kBytesPerGb = 1 << 30;

// Replaces every "automatic" of `config` by what it means for this model on this machine (see the
// comments of EngineConfig). Throws LoadError, naming the flag, for values out of range or beyond
// the model.
Resolved resolve(const EngineConfig& config, const model::ModelConfig& model);

// What "auto", "cpu", "reference", "cuda", "gpu" or "cuda:N" stands for on this machine. Throws
// LoadError for any other word.
ComputeDevice device_named(std::string_view word);

}  // namespace skiff::engine
