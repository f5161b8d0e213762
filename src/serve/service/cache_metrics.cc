#include "serve/service/cache_metrics.h"

namespace skiff::service {

void CacheMetrics::admitted(int prompt_tokens, int cached_tokens) {
  ++admitted_;
  admitted_hits_ += cached_tokens > 0;
  computed_.Observe(prompt_tokens - cached_tokens);
  cache_queries_.Increment(prompt_tokens);
  cache_hits_.Increment(cached_tokens);
  prefix_tokens_.Increment(cached_tokens);
}

void CacheMetrics::follow(const engine::EngineStats& stats) {
  usage_.Set(part(stats.blocks_total - stats.blocks_free, stats.blocks_total));
  blocks_free_.Set(stats.blocks_free);
  blocks_unused_.Set(stats.blocks_unused);
  blocks_total_.Set(stats.blocks_total);
  resource_.Set(part(stats.blocks_free, stats.blocks_total));
  raise(host_tokens_, stats.tiers.host_tokens);
  raise(file_tokens_, stats.tiers.file_tokens);
  raise(device_tokens_, cache_hits_.Value() - host_tokens_.Value() - file_tokens_.Value());
  raise(tier_failures_, stats.tiers.failures);
  raise(tier_skips_, stats.tiers.skipped);
  raise(tier_recomputed_, stats.tiers.recomputed);
  tier_waiting_.Set(stats.tiers.waiting);
  const double asked = cache_queries_.Value();
  hit_rate_.Set(part(cache_hits_.Value(), asked));
  device_rate_.Set(part(device_tokens_.Value(), asked));
  host_rate_.Set(part(host_tokens_.Value(), asked));
  hit_requests_.Set(part(static_cast<double>(admitted_hits_), static_cast<double>(admitted_)));
}

}  // namespace skiff::service
