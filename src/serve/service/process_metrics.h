// serve/service/process_metrics.h -- the resources that this process uses, for the metrics that
// Prometheus' own clients have.
#pragma once
#include <cstdint>

namespace skiff::service {

// Values from /proc/self; 0 where it has none.
struct ProcessUse {
  double resident_bytes = 0, virtual_bytes = 0;
  double cpu_seconds = 0;    // user and system time of all threads
  double start_seconds = 0;  // Unix time
  int threads = 0, open_fds = 0;
  double max_fds = 0;
};
ProcessUse process_use();

}  // namespace skiff::service
