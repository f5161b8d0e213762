#include "serve/service/peer_metrics.h"

namespace skiff::service {

PeerMetrics::PeerMetrics(MetricRegistry& registry) : registry_(registry) {
  for (size_t i = 0; i < recomputed_.size(); ++i)
    recomputed_[i] =
        &registry_.counter("pd_recomputed_tokens_total",
                           "decode: tokens computed here because their blocks did not come",
                           {{"reason", peer::kLossNames[i]}});
}

void PeerMetrics::follow(const peer::Stats& stats) {
  raise(blocks_, stats.blocks);
  raise(bytes_, stats.bytes);
  raise(seconds_, stats.seconds);
  raise(prompts_, stats.prompts);
  for (size_t i = 0; i < recomputed_.size(); ++i) raise(*recomputed_[i], stats.recomputed[i]);
  leases_.Set(stats.leases);
  connections_.Set(stats.connections);
}

}  // namespace skiff::service
