// apps/parallel_flags.h -- reads the flags that say how many replicas of a model there are, and
// refuses what cannot be had with them yet.
#pragma once
#include "apps/args.h"

namespace skiff::apps {

// Returns --data-parallel-size. Throws UsageError where another flag asks for a pipeline.
int replicas_of(const Args& args);

}  // namespace skiff::apps
