// serve/service/peer_metrics.h -- the metrics of blocks that other instances have, where prefill
// and decode are apart. Private to Metrics.
#pragma once
#include <array>

#include "peer/settings.h"
#include "serve/service/metric_registry.h"

namespace skiff::service {

// For one thread at a time.
class PeerMetrics {
 public:
  explicit PeerMetrics(MetricRegistry& registry);
  void follow(const peer::Stats& stats);

 private:
  MetricRegistry& registry_;
  // What went one way.
  struct Way {
    prometheus::Counter &blocks, &bytes;
  };
  Way way(const char* name);

  const Way tcp_ = way("tcp"), shared_memory_ = way("shared_memory");
  prometheus::Counter& seconds_ = registry_.counter(
      "pd_transfer_seconds_total",
      "decode: time from the first byte of each block to its last, over all ways");
  prometheus::Counter& prompts_ =
      registry_.counter("pd_prompts_total", "Prompts that a prefill server was asked to compute");
  prometheus::Gauge& leases_ =
      registry_.gauge("pd_leases", "Prompts whose blocks are kept for a decode server");
  prometheus::Gauge& connections_ =
      registry_.gauge("pd_connections", "Connections between the two halves");
  prometheus::Counter& send_failures_ = registry_.counter(
      "send_cache_failed_num",
      "Always 0: pd_recomputed_tokens_total counts what was not fetched from another server");
  std::array<prometheus::Counter*, peer::kLosses> recomputed_;
};

}  // namespace skiff::service
