// serve/service/process_metrics.h -- what this process costs the machine, by the names that
// Prometheus' own clients use.
#pragma once
#include <cstdint>

namespace skiff {

// What /proc/self says; 0 where it says nothing.
struct ProcessUse {
  double resident_bytes = 0, virtual_bytes = 0;
  double cpu_seconds = 0;    // of all threads, user and system
  double start_seconds = 0;  // Unix time
  int threads = 0, open_fds = 0;
  double max_fds = 0;
};
ProcessUse process_use();

}  // namespace skiff
