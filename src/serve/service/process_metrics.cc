#include "serve/service/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace skiff::service {
namespace {

int count_open_fds() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count - 1;  // without the descriptor of the folder itself
}

// Unix time at which the machine started.
double boot_time() {
  std::ifstream file("/proc/stat");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("btime ")) return std::stod(line.substr(6));
  return 0;
}

// Parses /proc/self/stat after the program's name, which may contain any character; field 3 is
// next.
void read_stat(ProcessUse& use) {
  std::ifstream file("/proc/self/stat");
  std::string line;
  if (!std::getline(file, line)) return;
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  std::string skipped;
  const auto skip = [&](int fields) {
    while (fields-- > 0) rest >> skipped;
  };
  double user = 0, system = 0, started = 0, pages = 0;
  skip(11);
  rest >> user >> system;  // 14, 15
  skip(4);
  rest >> use.threads;  // 20
  skip(1);
  rest >> started >> use.virtual_bytes >> pages;  // 22, 23, 24
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  use.cpu_seconds = (user + system) / ticks;
  use.start_seconds = boot_time() + started / ticks;
  use.resident_bytes = pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

ProcessUse process_use() {
  ProcessUse use;
  read_stat(use);
  use.open_fds = count_open_fds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) use.max_fds = static_cast<double>(limit.rlim_cur);
  return use;
}

void ProcessMetrics::follow(const ProcessUse& use) {
  resident_.Set(use.resident_bytes);
  virtual_memory_.Set(use.virtual_bytes);
  open_fds_.Set(use.open_fds);
  max_fds_.Set(use.max_fds);
  threads_.Set(use.threads);
  start_time_.Set(use.start_seconds);
  raise(cpu_, use.cpu_seconds);
}

}  // namespace skiff::service
