// apps/flag_rows.h -- rows of the table of flags that stand beside what reads them, or in a file of
// their own; flag_groups() has all.
#pragma once
#include <span>

#include "apps/args.h"

namespace skiff::apps {

// Returns the flags of the scheduler's policy (scheduler_flags.cc).
std::span<const Flag> scheduler_rows();

// Returns the flags of requests shared through Redis (queue_flags.cc).
std::span<const Flag> queue_rows();

// Returns vLLM's flags for replicas on several nodes (vllm_node_flags.cc).
std::span<const Flag> vllm_node_rows();

// Returns FastDeploy's flags without effect here (flags_without_effect.cc).
std::span<const Flag> rows_without_effect();

}  // namespace skiff::apps
