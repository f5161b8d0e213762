#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "model/memory_plan.h"

namespace skiff::model {
namespace {

std::optional<size_t> read_number(const std::string& path) {
  std::ifstream in(path);
  size_t value = 0;
  if (in >> value) return value;  // "max", which is no number, stands for no bound
  return std::nullopt;
}

// The number after `key` in a file of "key value" lines.
size_t read_entry(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string word;
  size_t value = 0;
  for (std::string line; in >> word && std::getline(in, line);)
    if (word == key) value = std::strtoull(line.c_str(), nullptr, 10);
  return value;
}

constexpr size_t kNoBound = std::numeric_limits<size_t>::max();

// The bytes that a control group leaves: its limit less what is used and cannot be dropped.
size_t group_room(const std::string& dir, const char* limit, const char* used,
                  const char* droppable) {
  const auto max = read_number(dir + limit), now = read_number(dir + used);
  if (!max || !now) return kNoBound;
  const size_t held = *now - std::min(*now, read_entry(dir + "/memory.stat", droppable));
  return *max - std::min(*max, held);
}

// The least that the groups of this process leave, of cgroups version 1 and of version 2, where
// each group above counts too and /proc/self/cgroup has the line "0::/path".
size_t cgroup_room() {
  size_t room = group_room("/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                           "/memory.usage_in_bytes", "total_inactive_file");
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::")) continue;
    std::string path = line.substr(3);
    for (;;) {
      const std::string dir = "/sys/fs/cgroup" + (path == "/" ? "" : path);
      room = std::min(room, group_room(dir, "/memory.max", "/memory.current", "inactive_file"));
      const size_t slash = path.rfind('/');
      if (path.empty() || slash == path.npos) break;
      path.resize(slash);
    }
  }
  return room;
}

}  // namespace

size_t available_memory() {
  const size_t host = read_entry("/proc/meminfo", "MemAvailable:") * 1024;
  return std::min(host, cgroup_room());
}

}  // namespace skiff::model
