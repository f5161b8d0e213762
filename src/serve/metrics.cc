#include "serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>
#include <sstream>
#include <utility>

namespace skiff {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// FastDeploy's bounds come first in each list; the tails are longer, so that a slow reply is
// still told apart from a very slow one.
const Buckets& ttft_bounds() {
  static const Buckets bounds{.001, .005, .01, .02, .04, .06, .08, .1,  .25, .5,  .75,  1,   2.5,
                              5,    7.5,  10,  20,  40,  60,  80,  160, 320, 640, 1280, 2560};
  return bounds;
}
const Buckets& token_bounds() {
  static const Buckets bounds{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                              .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
  return bounds;
}
const Buckets& latency_bounds() {
  static const Buckets bounds{.01, .05, .1, .3, .5, .8, 1,   1.5, 2,   2.5, 5,    10,
                              15,  20,  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
  return bounds;
}
const Buckets& count_bounds() {
  static const Buckets bounds = [] {
    Buckets all;
    for (double decade = 1; decade <= 1e6; decade *= 10)
      for (double step : {1., 2., 5.}) all.push_back(decade * step);
    return all;
  }();
  return bounds;
}

// The names that dashboards made for vLLM ask for, from the same numbers.
const std::map<std::string, std::string>& aliases() {
  static const std::map<std::string, std::string> names = [] {
    std::map<std::string, std::string> map{
        {"fastdeploy:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"}};
    for (const char* same :
         {"num_requests_running", "num_requests_waiting", "request_success_total",
          "time_to_first_token_seconds", "time_per_output_token_seconds",
          "e2e_request_latency_seconds", "request_queue_time_seconds",
          "request_prefill_time_seconds", "request_decode_time_seconds",
          "request_inference_time_seconds", "prompt_tokens_total", "generation_tokens_total",
          "request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens",
          "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total"})
      map.emplace(std::string("fastdeploy:") + same, std::string("vllm:") + same);
    return map;
  }();
  return names;
}

// To what the engine has counted.
void raise(prometheus::Counter& counter, uint64_t value) {
  const double more = static_cast<double>(value) - counter.Value();
  if (more > 0) counter.Increment(more);
}

const char* reason(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kExhausted:
      return "exhausted";
    default:
      return "abort";
  }
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(const std::string& model) : labels{{"model_name", model}} {}

  prometheus::Counter& counter(const std::string& name, const std::string& help,
                               prometheus::Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildCounter()
        .Name("fastdeploy:" + name)
        .Help(help)
        .Register(registry)
        .Add(more);
  }
  prometheus::Gauge& gauge(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge()
        .Name("fastdeploy:" + name)
        .Help(help)
        .Register(registry)
        .Add(labels);
  }
  prometheus::Histogram& histogram(const std::string& name, const std::string& help,
                                   const Buckets& bounds) {
    return prometheus::BuildHistogram()
        .Name("fastdeploy:" + name)
        .Help(help)
        .Register(registry)
        .Add(labels, bounds);
  }

  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
  prometheus::Labels labels;
  std::mutex text_mutex;  // text() compares before it adds

  prometheus::Counter& received = counter("requests_number", "Requests received");
  prometheus::Counter& prompt =
      counter("prompt_tokens_total", "Prompt tokens of admitted sequences");
  prometheus::Counter& generated = counter("generation_tokens_total", "Tokens generated");
  prometheus::Counter& cache_queries =
      counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  prometheus::Counter& cache_hits =
      counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  prometheus::Counter& prefix_tokens =
      counter("prefix_cache_token_num", "Prompt tokens found in the prefix cache");
  prometheus::Counter& host_tokens =
      counter("prefix_cpu_cache_token_num", "Prompt tokens brought back from host memory");
  prometheus::Counter& file_tokens =
      counter("prefix_ssd_cache_token_num", "Prompt tokens brought back from the cache's file");
  prometheus::Counter& tier_failures = counter(
      "prefix_cache_tier_failures_total", "Blocks that the cache's file could not give or take");
  prometheus::Counter& tier_skips = counter("prefix_cache_tier_skipped_total",
                                            "Blocks not kept or fetched for want of a free slot");
  prometheus::Counter& preempted =
      counter("num_preemptions_total", "Sequences that lost their memory and started again");
  std::map<Finish, prometheus::Counter*> success = [this] {
    std::map<Finish, prometheus::Counter*> all;
    for (Finish f : {Finish::kStop, Finish::kLength})
      all[f] = &counter("request_success_total", "Sequences completed",
                        {{"finished_reason", reason(f)}});
    return all;
  }();
  std::map<Finish, prometheus::Counter*> failure = [this] {
    std::map<Finish, prometheus::Counter*> all;
    for (Finish f : {Finish::kCancelled, Finish::kExhausted})
      all[f] = &counter("request_failure_total", "Sequences cancelled or refused",
                        {{"finished_reason", reason(f)}});
    return all;
  }();

  prometheus::Histogram& ttft =
      histogram("time_to_first_token_seconds", "From arrival to the first token", ttft_bounds());
  prometheus::Histogram& per_token =
      histogram("time_per_output_token_seconds", "Between tokens of a sequence", token_bounds());
  prometheus::Histogram& latency = histogram(
      "e2e_request_latency_seconds", "From arrival to the end of a request", latency_bounds());
  prometheus::Histogram& queue =
      histogram("request_queue_time_seconds", "From arrival to admission", latency_bounds());
  prometheus::Histogram& prefill = histogram("request_prefill_time_seconds",
                                             "From admission to the first token", latency_bounds());
  prometheus::Histogram& decode = histogram("request_decode_time_seconds",
                                            "From the first token to the last", latency_bounds());
  prometheus::Histogram& inference = histogram(
      "request_inference_time_seconds", "From admission to the last token", latency_bounds());
  prometheus::Histogram& prompt_sizes =
      histogram("request_prompt_tokens", "Prompt tokens of a request", count_bounds());
  prometheus::Histogram& reply_sizes =
      histogram("request_generation_tokens", "Tokens generated by a sequence", count_bounds());
  prometheus::Histogram& limits =
      histogram("request_params_max_tokens", "max_tokens of a request", count_bounds());

  prometheus::Gauge& running = gauge("num_requests_running", "Sequences in the batch");
  prometheus::Gauge& waiting = gauge("num_requests_waiting", "Sequences waiting for a place");
  prometheus::Gauge& batch = gauge("batch_size", "Sequences in the batch");
  prometheus::Gauge& batch_max = gauge("max_batch_size", "Sequences that fit the batch");
  prometheus::Gauge& batch_free = gauge("available_batch_size", "Free places in the batch");
  prometheus::Gauge& usage = gauge("gpu_cache_usage_perc", "KV cache in use; 1 is all of it");
  prometheus::Gauge& blocks_free =
      gauge("available_gpu_block_num", "KV blocks free or held only by the prefix cache");
  prometheus::Gauge& blocks_total = gauge("max_gpu_block_num", "KV blocks");
  prometheus::Gauge& resource =
      gauge("available_gpu_resource", "available_gpu_block_num over max_gpu_block_num");
  prometheus::Gauge& hit_rate =
      gauge("hit_token_rate", "Prompt tokens found in the prefix cache, of all since start");
  prometheus::Gauge& last_ttft = gauge("first_token_latency", "Latest time to first token, s");
  prometheus::Gauge& last_latency = gauge("infer_latency", "Latest request latency, s");
};

Metrics::Metrics(const std::string& model_name) : impl_(std::make_unique<Impl>(model_name)) {}
Metrics::~Metrics() = default;

void Metrics::request_received(int prompt_tokens, int max_tokens, int n) {
  impl_->received.Increment();
  impl_->prompt_sizes.Observe(prompt_tokens);
  for (int i = 0; i < n; ++i) impl_->limits.Observe(max_tokens);
}

void Metrics::sequence_admitted(double queued_seconds, int prompt_tokens, int cached_tokens) {
  impl_->queue.Observe(queued_seconds);
  impl_->prompt.Increment(prompt_tokens);
  impl_->cache_queries.Increment(prompt_tokens);
  impl_->cache_hits.Increment(cached_tokens);
  impl_->prefix_tokens.Increment(cached_tokens);
}

void Metrics::first_token(double since_arrival, double since_admission) {
  impl_->ttft.Observe(since_arrival);
  impl_->prefill.Observe(since_admission);
  impl_->last_ttft.Set(since_arrival);
  impl_->generated.Increment();
}

void Metrics::tokens(int count, double seconds_for_all) {
  for (int i = 0; i < count; ++i) impl_->per_token.Observe(seconds_for_all / count);
  impl_->generated.Increment(count);
}

void Metrics::sequence_ended(const Ended& ended) {
  const auto good = impl_->success.find(ended.finish);
  if (good == impl_->success.end()) {
    const auto bad = impl_->failure.find(ended.finish);
    if (bad != impl_->failure.end()) bad->second->Increment();
    return;
  }
  good->second->Increment();
  impl_->inference.Observe(ended.since_admission);
  impl_->decode.Observe(ended.since_first_token);
  impl_->reply_sizes.Observe(ended.generated);
}

void Metrics::request_ended(bool success, double since_arrival) {
  if (!success) return;
  impl_->latency.Observe(since_arrival);
  impl_->last_latency.Set(since_arrival);
}

std::string Metrics::text(const EngineStats& stats, int max_sequences) {
  Impl& m = *impl_;
  std::lock_guard lock(m.text_mutex);
  const double total = stats.blocks_total > 0 ? stats.blocks_total : 1;
  m.running.Set(stats.running);
  m.waiting.Set(stats.waiting);
  m.batch.Set(stats.running);
  m.batch_max.Set(max_sequences);
  m.batch_free.Set(max_sequences - stats.running);
  m.usage.Set((stats.blocks_total - stats.blocks_free) / total);
  m.blocks_free.Set(stats.blocks_free);
  m.blocks_total.Set(stats.blocks_total);
  m.resource.Set(stats.blocks_free / total);
  const double asked = m.cache_queries.Value();
  m.hit_rate.Set(asked > 0 ? m.cache_hits.Value() / asked : 0);
  raise(m.preempted, stats.preemptions);
  raise(m.host_tokens, stats.tiers.host_tokens);
  raise(m.file_tokens, stats.tiers.file_tokens);
  raise(m.tier_failures, stats.tiers.failures);
  raise(m.tier_skips, stats.tiers.skipped);

  auto families = m.registry.Collect();
  const size_t own = families.size();
  for (size_t i = 0; i < own; ++i) {
    const auto alias = aliases().find(families[i].name);
    if (alias == aliases().end()) continue;
    families.push_back(families[i]);
    families.back().name = alias->second;
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace skiff
