// base/processors.h -- counts the processors that this process may use.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace skiff {

// Returns the text of a file, or nothing where it cannot be read.
using FileText = std::function<std::optional<std::string>(const std::string& path)>;

// Returns the CPU time that control groups grant, as a number of processors: the least quota of the
// process's own group and of all groups above it, read through version 1 (cpu.cfs_quota_us) and
// version 2 (cpu.max) of the interface. Infinity where there is no quota.
double cgroup_processors(const FileText& file);

// Returns the number of processors in the calling thread's affinity mask, or fewer where a quota
// grants fewer; a quota is rounded up to whole processors. The result is at least 1.
int usable_processors();

}  // namespace skiff
