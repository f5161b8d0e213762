#include "serve/service/step_metrics.h"

#include <array>
#include <utility>

namespace skiff::service {
namespace {

template <size_t N>
std::vector<double> bounds_of(const std::array<double, N>& bounds) {
  return {bounds.begin(), bounds.end()};
}

prometheus::Histogram& phase(MetricRegistry& registry, const char* name) {
  return registry.histogram("step_duration_seconds",
                            "Time of the engine's thread in each part of a step",
                            bounds_of(engine::kStepSeconds), {{"phase", name}});
}

}  // namespace

template <size_t N>
void TallyMetric::follow(const engine::Tally<N>& tally) {
  std::vector<double> more;
  counts_.resize(tally.counts().size());
  for (size_t i = 0; i < counts_.size(); ++i) {
    more.push_back(static_cast<double>(tally.counts()[i] - counts_[i]));
    counts_[i] = tally.counts()[i];
  }
  histogram_.ObserveMultiple(more, tally.sum() - std::exchange(sum_, tally.sum()));
}

StepMetrics::StepMetrics(MetricRegistry& registry)
    : registry_(registry),
      plan_(phase(registry, "plan")),
      launch_(phase(registry, "launch")),
      wait_(phase(registry, "wait")),
      commit_(phase(registry, "commit")),
      rows_(registry.histogram("step_rows", "Tokens computed in a step",
                               bounds_of(engine::kStepRows))) {}

void StepMetrics::follow(const engine::EngineStats& stats, int max_sequences) {
  running_.Set(stats.running);
  waiting_.Set(stats.waiting);
  batch_.Set(stats.running);
  batch_max_.Set(max_sequences);
  batch_free_.Set(max_sequences - stats.running);
  raise(preempted_, stats.preemptions);
  raise(steps_, stats.steps);
  plan_.follow(stats.tally.plan);
  launch_.follow(stats.tally.launch);
  wait_.follow(stats.tally.wait);
  commit_.follow(stats.tally.commit);
  rows_.follow(stats.tally.rows);
}

}  // namespace skiff::service
