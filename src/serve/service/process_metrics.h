// serve/service/process_metrics.h -- the resources that this process uses, for the metrics that
// Prometheus' own clients have.
#pragma once
#include "serve/service/metric_registry.h"

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

// For one thread at a time.
class ProcessMetrics {
 public:
  explicit ProcessMetrics(MetricRegistry& registry) : registry_(registry) {}
  void follow(const ProcessUse& use);

 private:
  MetricRegistry& registry_;
  prometheus::Gauge& resident_ =
      registry_.process_gauge("resident_memory_bytes", "Memory of this process in RAM");
  prometheus::Gauge& virtual_memory_ =
      registry_.process_gauge("virtual_memory_bytes", "Addresses that this process has");
  prometheus::Gauge& open_fds_ = registry_.process_gauge("open_fds", "File descriptors open");
  prometheus::Gauge& max_fds_ =
      registry_.process_gauge("max_fds", "File descriptors that may be open");
  prometheus::Gauge& threads_ = registry_.process_gauge("threads", "Threads of this process");
  prometheus::Gauge& start_time_ =
      registry_.process_gauge("start_time_seconds", "When this process started, Unix time");
  prometheus::Counter& cpu_ =
      registry_.process_counter("cpu_seconds_total", "CPU time of all threads");
};

}  // namespace skiff::service
