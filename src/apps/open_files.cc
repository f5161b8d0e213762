#include "apps/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/load_error.h"

namespace skiff::apps {
namespace {

// Covers standard streams, the listening socket, event loops, the cache's file and a device's
// files.
constexpr uint64_t kOwnFiles = 32;

}  // namespace

int connections_that_fit(int wanted, int probes, uint64_t limit) {
  const uint64_t others = kOwnFiles + static_cast<uint64_t>(probes);
  if (limit <= others)
    fail_load(
        "the open-file limit of {} is too low to serve: {} are needed beside the connections; "
        "raise it with ulimit -n",
        limit, others);
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(wanted), limit - others));
}

uint64_t raise_open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return UINT64_MAX;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

}  // namespace skiff::apps
