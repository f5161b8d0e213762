// apps/graph_flags.h -- FastDeploy's flags about CUDA graphs.
#pragma once
#include "apps/args.h"
#include "engine/llm.h"

namespace skiff::apps {

// Applies --use-cudagraph and --graph-optimization-config. Throws a LoadError that names the key
// and the value.
void read_graphs(const Args& args, engine::EngineConfig& config);

}  // namespace skiff::apps
