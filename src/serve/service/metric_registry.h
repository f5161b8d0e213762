// serve/service/metric_registry.h -- where a server's metrics live: a registry in which each has
// the model's name as a label. Private to Metrics and the groups of metrics beside it.
#pragma once
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <string>
#include <vector>

namespace skiff::service {

// Thread-safe. Names are without "fastdeploy:", which is put before them. What is returned lives as
// long as the registry; the same name with the same labels gives the same metric.
class MetricRegistry {
 public:
  explicit MetricRegistry(const std::string& model_name) : labels_{{"model_name", model_name}} {}

  prometheus::Counter& counter(const std::string& name, const std::string& help,
                               prometheus::Labels more = {});
  prometheus::Gauge& gauge(const std::string& name, const std::string& help,
                           prometheus::Labels more = {});
  prometheus::Histogram& histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& bounds, prometheus::Labels more = {});
  // These register metrics of the process, whose names begin with "process_" and which have no
  // label.
  prometheus::Counter& process_counter(const std::string& name, const std::string& help);
  prometheus::Gauge& process_gauge(const std::string& name, const std::string& help);

  const std::string& model_name() const { return labels_.at("model_name"); }
  std::vector<prometheus::MetricFamily> collect() const { return registry_.Collect(); }

 private:
  prometheus::Labels with_own(prometheus::Labels more) const;

  const prometheus::Labels labels_;
  prometheus::Registry registry_{prometheus::Registry::InsertBehavior::Merge};
};

// Raises the counter to a value that another component counts. Not thread-safe for one counter.
void raise(prometheus::Counter& counter, double value);
void raise(prometheus::Counter& counter, uint64_t value);

// Returns of / all; 0 where nothing has been counted yet.
inline double part(double of, double all) { return all > 0 ? of / all : 0; }

}  // namespace skiff::service
