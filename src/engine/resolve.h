// engine/resolve.h -- turns a user's options into the settings that a model runs with.
#pragma once
#include <string_view>

#include "engine/config.h"
#include "engine/resolved.h"

namespace skiff::engine {

constexpr double kBytesPerGb = 1 << 30;

// Reads the model that `config` names. Shared experts become a block of their own where they have
// another format than the routed ones, or where several ranks or replicas have these whole.
model::ModelConfig read_model(const EngineConfig& config);

// Replaces every "automatic" of `config` by what it means for this model on this machine (see the
// comments of EngineConfig). Throws LoadError, naming the flag, for values out of range or beyond
// the model.
Resolved resolve(const EngineConfig& config, const model::ModelConfig& model);

// Returns the settings of one of the replicas that `resolved` asks for: CUDA replicas have a device
// each, in order from the first; those on the CPU divide the threads, and each has at least one.
// Each has its own folder for cached blocks: the first the one that was asked for, others one
// within it. They share the size that the file may have.
Resolved replica_of(const Resolved& resolved, int index);

// Returns the device that "auto", "cpu", "reference", "cuda", "gpu" or "cuda:N" stands for on this
// machine. Throws LoadError for any other word.
ComputeDevice device_named(std::string_view word);

}  // namespace skiff::engine
