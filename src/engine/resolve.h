// engine/resolve.h -- from what a user asked for to numbers that a model can run with.
#pragma once
#include "engine/llm.h"
#include "sched/scheduler.h"

namespace skiff {

// Every 0 but num_blocks_override replaced; see the comments of EngineConfig. Throws LoadError,
// naming the flag, for values out of range or beyond the model.
EngineConfig resolved(EngineConfig config, const ModelSpec& spec);

// What the scheduler, the batch and the memory plan go by; of a resolved config.
Limits limits_of(const EngineConfig& config, const ModelSpec& spec);

constexpr double kBytesPerGb = 1 << 30;

MemoryRequest memory_request(const EngineConfig& config, const ModelSpec& spec);

// "cpu" or "reference". Throws LoadError.
std::unique_ptr<Ops> make_ops(const EngineConfig& config);

}  // namespace skiff
