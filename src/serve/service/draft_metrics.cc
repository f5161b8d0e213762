#include "serve/service/draft_metrics.h"

#include <string>

namespace skiff::service {

DraftMetrics::DraftMetrics(MetricRegistry& registry, int most) : registry_(registry) {
  for (int depth = 0; depth < most; ++depth) {
    const std::string position = std::to_string(depth);
    drafted_at_.push_back(&registry_.counter("spec_decode_num_draft_tokens_per_pos_total",
                                             "Drafts that were checked, by their position",
                                             {{"position", position}}));
    accepted_at_.push_back(&registry_.counter("spec_decode_num_accepted_tokens_per_pos_total",
                                              "Drafts that were kept, by their position",
                                              {{"position", position}}));
    rate_at_.push_back(&registry_.gauge("spec_decode_draft_single_head_acceptance_rate_" + position,
                                        "Drafts kept at this position, of those checked there"));
  }
}

void DraftMetrics::follow(const engine::EngineStats& engine) {
  const auto& stats = engine.drafts;
  const auto ratio = [](uint64_t of, uint64_t all) {
    return part(static_cast<double>(of), static_cast<double>(all));
  };
  const uint64_t given = stats.kept + stats.checks;
  raise(checks_, stats.checks);
  raise(drafted_, stats.drafted);
  raise(accepted_, stats.kept);
  raise(emitted_, given);
  rate_.Set(ratio(stats.kept, stats.drafted));
  efficiency_.Set(ratio(given, stats.drafted + stats.checks));
  mean_length_.Set(ratio(given, stats.checks));
  for (size_t i = 0; i < rate_at_.size(); ++i) {
    raise(*drafted_at_[i], stats.drafted_at.at(i));
    raise(*accepted_at_[i], stats.kept_at.at(i));
    rate_at_[i]->Set(ratio(stats.kept_at.at(i), stats.drafted_at.at(i)));
  }
}

}  // namespace skiff::service
