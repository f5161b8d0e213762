// serve/service/draft_metrics.h -- the metrics of drafts, where tokens are drafted. Private to
// Metrics.
#pragma once
#include <vector>

#include "serve/service/engine_port.h"
#include "serve/service/metric_registry.h"

namespace skiff::service {

// For one thread at a time.
class DraftMetrics {
 public:
  // `most` is the number of drafts that a sequence may have, at most sched::DraftStats::kDepths.
  DraftMetrics(MetricRegistry& registry, int most);
  void follow(const engine::EngineStats& engine);

 private:
  MetricRegistry& registry_;
  prometheus::Counter& checks_ =
      registry_.counter("spec_decode_num_drafts_total", "Draws with drafts behind them");
  prometheus::Counter& drafted_ =
      registry_.counter("spec_decode_num_draft_tokens_total", "Drafts that were checked");
  prometheus::Counter& accepted_ =
      registry_.counter("spec_decode_num_accepted_tokens_total", "Drafts that were kept");
  prometheus::Counter& emitted_ =
      registry_.counter("spec_decode_num_emitted_tokens_total",
                        "Tokens of draws with drafts: those kept, and one for each draw");
  prometheus::Gauge& rate_ =
      registry_.gauge("spec_decode_draft_acceptance_rate", "Drafts kept, of those checked");
  prometheus::Gauge& efficiency_ = registry_.gauge(
      "spec_decode_efficiency", "Tokens of draws with drafts, of those if all had been kept");
  prometheus::Gauge& mean_length_ = registry_.gauge(
      "spec_decode_mean_accepted_length", "Tokens of a draw with drafts, its own included");
  std::vector<prometheus::Counter*> drafted_at_, accepted_at_;  // by position
  std::vector<prometheus::Gauge*> rate_at_;
};

}  // namespace skiff::service
