// apps/speculative_flags.h -- the flags about speculative decoding.
#pragma once
#include "apps/args.h"
#include "engine/llm.h"

namespace skiff::apps {

// Applies --speculative-config, whose keys have the names of FastDeploy and of vLLM, and the flags
// --speculative-* for single keys. Throws a UsageError that names the key, the value and what to do
// instead: also for methods and rules that are not there, and for keys that the method has no use
// for.
void read_speculation(const Args& args, engine::EngineConfig& config);

}  // namespace skiff::apps
