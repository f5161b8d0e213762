// apps/graph_flags.h -- the flags about how a device computes a step, CUDA graphs among them.
#pragma once
#include "apps/args.h"
#include "engine/llm.h"

namespace skiff::apps {

// Applies --use-cudagraph, --graph-optimization-config, --fuse-single-row and --batch-invariant.
// Throws a LoadError that names the key and the value.
void read_graphs(const Args& args, engine::EngineConfig& config);

}  // namespace skiff::apps
