#include "apps/parallel_flags.h"

#include <fmt/format.h>

#include "apps/vllm_node_flags.h"

namespace skiff::apps {
namespace {

// Refuses the flags that FastDeploy's multi_api_server is started with.
void refuse_ports(const Args& args) {
  if (args.command() != kServe) return;
  for (const char* name : {"ports", "num-servers", "metrics-ports"}) {
    if (!args.given(name)) continue;
    throw UsageError(fmt::format(
        "--{} {}: a port for each replica is not there; --port serves all replicas of "
        "--data-parallel-size and deals requests to them. For a port each, start a server for "
        "each, as in CUDA_VISIBLE_DEVICES=1 skiff serve MODEL --port 8001",
        name, args.text(name)));
  }
}

}  // namespace

int replicas_of(const Args& args) {
  refuse_ports(args);
  refuse_stages(args);
  return static_cast<int>(args.integer("data-parallel-size"));
}

}  // namespace skiff::apps
