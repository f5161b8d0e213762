#include "apps/parallel_flags.h"

#include "apps/vllm_node_flags.h"

namespace skiff::apps {

int replicas_of(const Args& args) {
  refuse_stages(args);
  return static_cast<int>(args.integer("data-parallel-size"));
}

}  // namespace skiff::apps
