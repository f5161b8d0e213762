// base/processors.h -- how many processors this process may use.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace skiff {

// The text of a file, or nothing where it cannot be read.
using FileText = std::function<std::optional<std::string>(const std::string& path)>;

// The processors' time that control groups grant, as a number of processors: the least quota of
// the process's own group and of all groups above it, in version 1 (cpu.cfs_quota_us) and version
// 2 (cpu.max) of the interface. Infinity where there is no quota.
double cgroup_processors(const FileText& file);

// The processors of the calling thread's affinity mask, or fewer where a quota grants fewer; a part
// of a processor counts as a whole one. At least 1.
int usable_processors();

}  // namespace skiff
