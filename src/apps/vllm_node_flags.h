// apps/vllm_node_flags.h -- vLLM's flags for replicas on several nodes, which say again what --ips,
// --node-rank and --data-parallel-size say here.
#pragma once
#include <string>

#include "apps/args.h"
#include "apps/node_place.h"

namespace skiff::apps {

// What --ips and the other sources of a NodePlace say of this node.
struct NodeDuty {
  NodePlace place;
  NodeShare share;
  int all_replicas = 1;  // on all nodes
  std::string first;     // address of node 0, where there are several and the flags name one
};

// Throws UsageError, with the way out, for a flag that contradicts the duty or that no server here
// can do. Warns of those that say nothing here.
void check_vllm_node_flags(const Args& args, const NodeDuty& duty);

// Throws UsageError, with the way out, for a --pipeline-parallel-size above 1.
void refuse_stages(const Args& args);

}  // namespace skiff::apps
