#include "serve/service/peer_metrics.h"

namespace skiff::service {

PeerMetrics::PeerMetrics(MetricRegistry& registry) : registry_(registry) {
  for (size_t i = 0; i < recomputed_.size(); ++i)
    recomputed_[i] =
        &registry_.counter("pd_recomputed_tokens_total",
                           "decode: tokens computed here because their blocks did not come",
                           {{"reason", peer::kLossNames[i]}});
}

PeerMetrics::Way PeerMetrics::way(const char* name) {
  return {
      registry_.counter("pd_transferred_blocks_total",
                        "KV blocks handed to decode servers, or fetched from prefill ones",
                        {{"way", name}}),
      registry_.counter("pd_transferred_bytes_total", "Bytes of these blocks", {{"way", name}})};
}

void PeerMetrics::follow(const peer::Stats& stats) {
  raise(shared_memory_.blocks, stats.shared_blocks);
  raise(tcp_.blocks, stats.blocks - stats.shared_blocks);
  raise(shared_memory_.bytes, stats.shared_bytes);
  raise(tcp_.bytes, stats.bytes - stats.shared_bytes);
  raise(seconds_, stats.seconds);
  raise(prompts_, stats.prompts);
  for (size_t i = 0; i < recomputed_.size(); ++i) raise(*recomputed_[i], stats.recomputed[i]);
  leases_.Set(stats.leases);
  connections_.Set(stats.connections);
}

}  // namespace skiff::service
