// apps/flag_rows.h -- rows of the table of flags that stand beside what reads them, or in a file of
// their own; flag_groups() has all.
#pragma once
#include <span>

#include "apps/args.h"

namespace skiff::apps {

// What the scheduler prefers (scheduler_flags.cc).
std::span<const Flag> scheduler_rows();

// Requests shared through Redis (queue_flags.cc).
std::span<const Flag> queue_rows();

// FastDeploy's flags without effect here (flags_without_effect.cc).
std::span<const Flag> rows_without_effect();

}  // namespace skiff::apps
