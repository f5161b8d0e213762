// serve/service/step_metrics.h -- the metrics of the engine's steps, and of the batch that they
// compute. Private to Metrics.
#pragma once
#include <cstdint>
#include <vector>

#include "serve/service/engine_port.h"
#include "serve/service/metric_registry.h"

namespace skiff::service {

// A histogram that mirrors one that the engine keeps. For one thread at a time.
class TallyMetric {
 public:
  explicit TallyMetric(prometheus::Histogram& histogram) : histogram_(histogram) {}
  template <size_t N>
  void follow(const engine::Tally<N>& tally);

 private:
  prometheus::Histogram& histogram_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// For one thread at a time.
class StepMetrics {
 public:
  explicit StepMetrics(MetricRegistry& registry);
  void follow(const engine::EngineStats& stats, int max_sequences);

 private:
  MetricRegistry& registry_;
  prometheus::Counter& preempted_ = registry_.counter(
      "num_preemptions_total", "Sequences that lost their memory and started again");
  prometheus::Counter& steps_ = registry_.counter("steps_total", "Steps completed");
  prometheus::Gauge& running_ = registry_.gauge("num_requests_running", "Sequences in the batch");
  prometheus::Gauge& waiting_ =
      registry_.gauge("num_requests_waiting", "Sequences waiting for a place");
  prometheus::Gauge& batch_ = registry_.gauge("batch_size", "Sequences in the batch");
  prometheus::Gauge& batch_max_ = registry_.gauge("max_batch_size", "Sequences that fit the batch");
  prometheus::Gauge& batch_free_ =
      registry_.gauge("available_batch_size", "Free places in the batch");
  TallyMetric plan_, launch_, wait_, commit_, rows_;
};

}  // namespace skiff::service
