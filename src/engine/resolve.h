// engine/resolve.h -- from what a user asked for to numbers that a model can run with.
#pragma once
#include "engine/llm.h"
#include "sched/scheduler.h"

namespace skiff {

// Every 0 but num_blocks_override replaced, and `device` by "cpu", "reference" or "cuda:N"; see the
// comments of EngineConfig. Throws LoadError, naming the flag, for values out of range or beyond
// the model.
EngineConfig resolved(EngineConfig config, const ModelSpec& spec);

// What the scheduler, the batch and the memory plan go by; of a resolved config.
Limits limits_of(const EngineConfig& config, const ModelSpec& spec);

constexpr double kBytesPerGb = 1 << 30;

// `ops` is what will compute: its memory is planned.
MemoryRequest memory_request(const EngineConfig& config, const ModelSpec& spec, const Ops& ops);

// Makes the backend that config.device names. Throws LoadError.
std::unique_ptr<Ops> make_ops(const EngineConfig& config, const ModelSpec& spec);

// The device that "auto", "cpu", "reference", "cuda", "gpu" or "cuda:N" stands for on this machine.
// Throws LoadError.
Device device_of(const EngineConfig& config);

// Batch sizes whose decode steps are recorded, rising, the last one max_num_seqs; empty where
// nothing is recorded: of the config, or FastDeploy's ladder without its gap from 257 to 543.
std::vector<int> capture_sizes(const EngineConfig& config, Device device);

}  // namespace skiff
