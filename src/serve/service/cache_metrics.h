// serve/service/cache_metrics.h -- the metrics of the KV cache: its blocks, what prompts found in
// it, and its lower tiers. Private to Metrics.
#pragma once
#include <atomic>
#include <cstdint>

#include "serve/service/engine_port.h"
#include "serve/service/metric_names.h"
#include "serve/service/metric_registry.h"

namespace skiff::service {

// admitted() is thread-safe, follow() for one thread at a time.
class CacheMetrics {
 public:
  explicit CacheMetrics(MetricRegistry& registry) : registry_(registry) {}

  void admitted(int prompt_tokens, int cached_tokens);
  void follow(const engine::EngineStats& stats);

 private:
  MetricRegistry& registry_;
  prometheus::Counter& cache_queries_ = registry_.counter(
      "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  prometheus::Counter& cache_hits_ =
      registry_.counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  prometheus::Counter& prefix_tokens_ =
      registry_.counter("prefix_cache_token_num", "Prompt tokens found in the prefix cache");
  prometheus::Counter& device_tokens_ = registry_.counter(
      "prefix_gpu_cache_token_num", "Prompt tokens found in the pool itself, of those found");
  prometheus::Counter& host_tokens_ = registry_.counter(
      "prefix_cpu_cache_token_num", "Prompt tokens brought back from host memory");
  prometheus::Counter& file_tokens_ = registry_.counter(
      "prefix_ssd_cache_token_num", "Prompt tokens brought back from the cache's file");
  prometheus::Counter& tier_failures_ = registry_.counter(
      "prefix_cache_tier_failures_total", "Blocks that the cache's file could not give or take");
  prometheus::Counter& tier_skips_ = registry_.counter(
      "prefix_cache_tier_skipped_total", "Blocks not kept or fetched for want of a free slot");
  prometheus::Counter& tier_recomputed_ =
      registry_.counter("prefix_cache_tier_recomputed_total",
                        "Times that cached blocks were computed again because that is cheaper");
  prometheus::Gauge& tier_waiting_ = registry_.gauge(
      "prefix_cache_tier_waiting_num", "Sequences that wait for room in the cache's host memory");
  prometheus::Gauge& usage_ =
      registry_.gauge("gpu_cache_usage_perc", "KV cache in use; 1 is all of it");
  prometheus::Gauge& blocks_free_ =
      registry_.gauge("available_gpu_block_num", "KV blocks free or held only by the prefix cache");
  prometheus::Gauge& blocks_unused_ =
      registry_.gauge("free_gpu_block_num", "KV blocks that hold nothing");
  prometheus::Gauge& blocks_total_ = registry_.gauge("max_gpu_block_num", "KV blocks");
  prometheus::Gauge& resource_ =
      registry_.gauge("available_gpu_resource", "available_gpu_block_num over max_gpu_block_num");
  prometheus::Gauge& hit_requests_ = registry_.gauge(
      "hit_req_rate", "Sequences that found any of their prompt in the prefix cache");
  prometheus::Gauge& hit_rate_ = registry_.gauge(
      "hit_token_rate", "Prompt tokens found in the prefix cache, of all since start");
  prometheus::Gauge& device_rate_ =
      registry_.gauge("gpu_hit_token_rate", "Those found in the pool, of all since start");
  prometheus::Gauge& host_rate_ = registry_.gauge(
      "cpu_hit_token_rate", "Those brought back from host memory, of all since start");
  prometheus::Histogram& computed_ =
      registry_.histogram("request_prefill_kv_computed_tokens",
                          "Prompt tokens that were not found in the prefix cache", count_bounds());
  std::atomic<uint64_t> admitted_{0}, admitted_hits_{0};  // sequences
};

}  // namespace skiff::service
