#include "base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

namespace skiff {
namespace {

constexpr double kUnlimited = HUGE_VAL;

double ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kUnlimited;
}

// The text is "QUOTA PERIOD", or "max PERIOD" where there is no quota.
double quota_v2(const FileText& file, const std::string& folder) {
  std::istringstream in(file(folder + "/cpu.max").value_or(""));
  double quota = 0, period = 0;
  return in >> quota >> period ? ratio(quota, period) : kUnlimited;
}

double number_in(const FileText& file, const std::string& path) {
  std::istringstream in(file(path).value_or(""));
  double value = 0;
  return in >> value ? value : 0;
}

// A quota of -1 means that there is none.
double quota_v1(const FileText& file, const std::string& folder) {
  return ratio(number_in(file, folder + "/cpu.cfs_quota_us"),
               number_in(file, folder + "/cpu.cfs_period_us"));
}

// Returns the least quota of the group `path` below `mount` and of the groups above it. Inside a
// container the path may not exist; the container's own group is then the mount itself.
template <class Quota>
double least_quota(const FileText& file, const std::string& mount, std::string path, Quota quota) {
  double least = quota(file, mount);
  while (path.size() > 1) {
    least = std::min(least, quota(file, mount + path));
    const size_t slash = path.rfind('/');
    if (slash == path.npos) break;
    path.resize(slash);
  }
  return least;
}

bool has_cpu(const std::string& controllers) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');)
    if (name == "cpu") return true;
  return false;
}

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

// A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:PATH"; version 2 names no controllers.
double cgroup_processors(const FileText& file) {
  const std::string root = "/sys/fs/cgroup";
  double least = kUnlimited;
  std::istringstream in(file("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      for (const char* mount : {"", "/unified"})
        least = std::min(least, least_quota(file, root + mount, path, quota_v2));
    if (has_cpu(controllers))
      for (const std::string& mount : {"/" + controllers, std::string("/cpu")})
        least = std::min(least, least_quota(file, root + mount, path, quota_v1));
  }
  return least;
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = std::ceil(cgroup_processors(text_of));
  return std::max(1, quota < cores ? static_cast<int>(quota) : cores);
}

}  // namespace skiff
