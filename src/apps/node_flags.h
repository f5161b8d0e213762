// apps/node_flags.h -- reads the flags and the environment that say which node this is, and what
// runs on it.
#pragma once
#include "apps/args.h"
#include "nodes/settings.h"

namespace skiff::apps {

struct NodePlan {
  int replicas = 1;  // engines of this node
  // The nodes that hold one model together, and which of them this one is. Where each node holds
  // whole replicas, this node alone.
  nodes::Settings nodes;
};

// Reads --ips, --node-rank and what mpirun, Kubernetes or PaddleNLP say (apps/node_place.h), and
// logs what follows from it. Warns of flags of nodes without effect. Throws UsageError, and
// LoadError for the file of the key.
NodePlan node_plan(const Args& args);

}  // namespace skiff::apps
