#include "serve/service/metric_registry.h"

namespace skiff::service {

prometheus::Labels MetricRegistry::with_own(prometheus::Labels more) const {
  more.insert(labels_.begin(), labels_.end());
  return more;
}

prometheus::Counter& MetricRegistry::counter(const std::string& name, const std::string& help,
                                             prometheus::Labels more) {
  auto& family =
      prometheus::BuildCounter().Name("fastdeploy:" + name).Help(help).Register(registry_);
  return family.Add(with_own(std::move(more)));
}

prometheus::Gauge& MetricRegistry::gauge(const std::string& name, const std::string& help,
                                         prometheus::Labels more) {
  auto& family = prometheus::BuildGauge().Name("fastdeploy:" + name).Help(help).Register(registry_);
  return family.Add(with_own(std::move(more)));
}

prometheus::Histogram& MetricRegistry::histogram(const std::string& name, const std::string& help,
                                                 const std::vector<double>& bounds,
                                                 prometheus::Labels more) {
  auto& family =
      prometheus::BuildHistogram().Name("fastdeploy:" + name).Help(help).Register(registry_);
  return family.Add(with_own(std::move(more)), bounds);
}

prometheus::Counter& MetricRegistry::process_counter(const std::string& name,
                                                     const std::string& help) {
  return prometheus::BuildCounter().Name("process_" + name).Help(help).Register(registry_).Add({});
}

prometheus::Gauge& MetricRegistry::process_gauge(const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name("process_" + name).Help(help).Register(registry_).Add({});
}

void raise(prometheus::Counter& counter, double value) {
  if (const double more = value - counter.Value(); more > 0) counter.Increment(more);
}

void raise(prometheus::Counter& counter, uint64_t value) {
  raise(counter, static_cast<double>(value));
}

}  // namespace skiff::service
