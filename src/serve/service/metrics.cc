#include "serve/service/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <sstream>
#include <utility>

#include "serve/service/constraint_compiler.h"
#include "serve/service/metric_names.h"
#include "serve/service/process_metrics.h"

namespace skiff::service {
namespace {

using Bounds = std::vector<double>;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

// Raises the counter to a value that another component counts.
void raise(Counter& counter, double value) {
  if (const double more = value - counter.Value(); more > 0) counter.Increment(more);
}
void raise(Counter& counter, uint64_t value) { raise(counter, static_cast<double>(value)); }

// A histogram that mirrors one that another component keeps.
struct Follower {
  Histogram& histogram;
  std::vector<uint64_t> counts = {};
  double sum = 0;

  template <size_t N>
  void follow(const engine::Tally<N>& tally) {
    std::vector<double> more;
    counts.resize(tally.counts().size());
    for (size_t i = 0; i < counts.size(); ++i) {
      more.push_back(static_cast<double>(tally.counts()[i] - counts[i]));
      counts[i] = tally.counts()[i];
    }
    histogram.ObserveMultiple(more, tally.sum() - std::exchange(sum, tally.sum()));
  }
};

template <size_t N>
Bounds bounds_of(const std::array<double, N>& bounds) {
  return {bounds.begin(), bounds.end()};
}

// 0 where nothing has been counted yet.
double part(double of, double all) { return all > 0 ? of / all : 0; }

}  // namespace

struct Metrics::Impl {
  Impl(const std::string& model, std::map<std::string, std::string> cache_info)
      : labels{{"model_name", model}} {
    prometheus::Labels more(cache_info.begin(), cache_info.end());
    gauge("cache_config_info", "How the KV cache is set up, in its labels; always 1", more).Set(1);
  }

  Counter& counter(const std::string& name, const std::string& help, prometheus::Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    auto& family =
        prometheus::BuildCounter().Name("fastdeploy:" + name).Help(help).Register(registry);
    return family.Add(more);
  }
  Gauge& gauge(const std::string& name, const std::string& help, prometheus::Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    auto& family =
        prometheus::BuildGauge().Name("fastdeploy:" + name).Help(help).Register(registry);
    return family.Add(more);
  }
  Histogram& histogram(const std::string& name, const std::string& help, const Bounds& bounds,
                       prometheus::Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    auto& family =
        prometheus::BuildHistogram().Name("fastdeploy:" + name).Help(help).Register(registry);
    return family.Add(more, bounds);
  }
  Gauge& process(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name("process_" + name).Help(help).Register(registry).Add({});
  }
  Follower phase(const char* name) {
    return {histogram("step_duration_seconds", "Time of the engine's thread in each part of a step",
                      bounds_of(engine::kStepSeconds), {{"phase", name}})};
  }

  void set_engine(const engine::EngineStats& stats, int max_sequences);
  void set_cache(const engine::EngineStats& stats);
  void set_process();

  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
  prometheus::Labels labels;
  std::mutex text_mutex;  // serializes text(), which computes differences

  Counter& received = counter("requests_number", "Requests received");
  Counter& prompt = counter("prompt_tokens_total", "Prompt tokens of admitted sequences");
  Counter& generated = counter("generation_tokens_total", "Tokens generated");
  Counter& cache_queries =
      counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  Counter& cache_hits =
      counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  Counter& prefix_tokens =
      counter("prefix_cache_token_num", "Prompt tokens found in the prefix cache");
  Counter& device_tokens = counter("prefix_gpu_cache_token_num",
                                   "Prompt tokens found in the pool itself, of those found");
  Counter& host_tokens =
      counter("prefix_cpu_cache_token_num", "Prompt tokens brought back from host memory");
  Counter& file_tokens =
      counter("prefix_ssd_cache_token_num", "Prompt tokens brought back from the cache's file");
  Counter& tier_failures = counter("prefix_cache_tier_failures_total",
                                   "Blocks that the cache's file could not give or take");
  Counter& tier_skips = counter("prefix_cache_tier_skipped_total",
                                "Blocks not kept or fetched for want of a free slot");
  Counter& tier_recomputed =
      counter("prefix_cache_tier_recomputed_total",
              "Times that cached blocks were computed again because that is cheaper");
  Counter& send_failures =
      counter("send_cache_failed_num", "Caches that could not be sent to another server; none are");
  Counter& preempted =
      counter("num_preemptions_total", "Sequences that lost their memory and started again");
  Counter& steps = counter("steps_total", "Steps completed");
  Counter& calls = counter("tool_calls_total", "Tool calls found in replies");
  Counter& broken_calls = counter("tool_call_parse_failures_total",
                                  "What began like a tool call in a reply and was none");
  std::map<std::string, Counter*> constrained = [this] {
    using enum grammar::ConstraintKind;
    std::map<std::string, Counter*> all;
    for (const auto kind : {kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kStructuralTag})
      all[label_of(kind)] =
          &counter("constrained_requests_total", "Requests whose replies had to have a form",
                   {{"kind", label_of(kind)}});
    return all;
  }();
  Counter& masks = counter("constraint_masks_total", "Masks made for constrained replies");
  Counter& mask_seconds =
      counter("constraint_mask_seconds_total", "Time that these masks took, on the host");
  Counter& unfollowed = counter("constraint_failures_total",
                                "Requests whose replies could not follow their constraint");
  Counter& reasoning = counter("reasoning_tokens_total", "Tokens generated inside the reasoning");
  Counter& log_dropped =
      counter("request_log_dropped_total", "Lines that the request log had no room for");
  Counter& spans_dropped =
      counter("trace_spans_dropped_total", "Spans that were not sent, or not accepted");
  Counter& spans_sent = counter("trace_spans_sent_total", "Spans sent to the collector");
  std::map<Finish, Counter*> success = [this] {
    std::map<Finish, Counter*> all;
    for (Finish f : {Finish::kStop, Finish::kLength})
      all[f] = &counter("request_success_total", "Sequences completed",
                        {{"finished_reason", label_of(f)}});
    return all;
  }();
  std::map<Finish, Counter*> failure = [this] {
    std::map<Finish, Counter*> all;
    for (Finish f : {Finish::kCancelled, Finish::kExhausted})
      all[f] = &counter("request_failure_total", "Sequences cancelled or refused",
                        {{"finished_reason", label_of(f)}});
    return all;
  }();
  std::array<Counter*, kRefusals> refusals = [this] {
    std::array<Counter*, kRefusals> all;
    for (int i = 0; i < kRefusals; ++i)
      all[static_cast<size_t>(i)] =
          &counter("requests_refused_total", "Requests refused or given up, by reason",
                   {{"reason", label_of(static_cast<Refusal>(i))}});
    return all;
  }();

  Histogram& ttft = histogram("time_to_first_token_seconds", "From arrival to the first token",
                              first_token_bounds());
  Histogram& per_token =
      histogram("time_per_output_token_seconds", "Between tokens of a sequence", token_bounds());
  Histogram& mean_per_token =
      histogram("request_time_per_output_token_seconds",
                "Mean time between the tokens of one sequence", token_bounds());
  Histogram& latency = histogram("e2e_request_latency_seconds",
                                 "From arrival to the end of a request", latency_bounds());
  Histogram& queue =
      histogram("request_queue_time_seconds", "From arrival to admission", latency_bounds());
  Histogram& prefill = histogram("request_prefill_time_seconds",
                                 "From admission to the first token", latency_bounds());
  Histogram& decode = histogram("request_decode_time_seconds", "From the first token to the last",
                                latency_bounds());
  Histogram& inference = histogram("request_inference_time_seconds",
                                   "From admission to the last token", latency_bounds());
  Histogram& prompt_sizes =
      histogram("request_prompt_tokens", "Prompt tokens of a request", count_bounds());
  Histogram& computed =
      histogram("request_prefill_kv_computed_tokens",
                "Prompt tokens that were not found in the prefix cache", count_bounds());
  Histogram& reply_sizes =
      histogram("request_generation_tokens", "Tokens generated by a sequence", count_bounds());
  Histogram& longest_replies = histogram("request_max_num_generation_tokens",
                                         "Tokens of a request's longest sequence", count_bounds());
  Histogram& limits =
      histogram("request_params_max_tokens", "max_tokens of a request", count_bounds());
  Histogram& choices = histogram("request_params_n", "n of a request", count_bounds());
  Follower plan = phase("plan"), launch = phase("launch"), wait = phase("wait"),
           commit = phase("commit");
  Follower rows{histogram("step_rows", "Tokens computed in a step", bounds_of(engine::kStepRows))};

  Gauge& running = gauge("num_requests_running", "Sequences in the batch");
  Gauge& waiting = gauge("num_requests_waiting", "Sequences waiting for a place");
  Gauge& waiting_tokens =
      gauge("num_waiting_tokens", "Prompt tokens of sequences that never had a place yet");
  Gauge& queued_events =
      gauge("num_events_queued", "Events of the engine that are not turned into text yet");
  Gauge& batch = gauge("batch_size", "Sequences in the batch");
  Gauge& batch_max = gauge("max_batch_size", "Sequences that fit the batch");
  Gauge& batch_free = gauge("available_batch_size", "Free places in the batch");
  Gauge& usage = gauge("gpu_cache_usage_perc", "KV cache in use; 1 is all of it");
  Gauge& blocks_free =
      gauge("available_gpu_block_num", "KV blocks free or held only by the prefix cache");
  Gauge& blocks_unused = gauge("free_gpu_block_num", "KV blocks that hold nothing");
  Gauge& blocks_total = gauge("max_gpu_block_num", "KV blocks");
  Gauge& resource =
      gauge("available_gpu_resource", "available_gpu_block_num over max_gpu_block_num");
  Gauge& hit_requests =
      gauge("hit_req_rate", "Sequences that found any of their prompt in the prefix cache");
  Gauge& hit_rate =
      gauge("hit_token_rate", "Prompt tokens found in the prefix cache, of all since start");
  Gauge& device_rate = gauge("gpu_hit_token_rate", "Those found in the pool, of all since start");
  Gauge& host_rate =
      gauge("cpu_hit_token_rate", "Those brought back from host memory, of all since start");
  Gauge& last_ttft = gauge("first_token_latency", "Latest time to first token, s");
  Gauge& last_latency = gauge("infer_latency", "Latest request latency, s");
  std::atomic<uint64_t> admitted{0}, admitted_hits{0};

  Gauge& resident = process("resident_memory_bytes", "Memory of this process in RAM");
  Gauge& virtual_memory = process("virtual_memory_bytes", "Addresses that this process has");
  Gauge& open_fds = process("open_fds", "File descriptors open");
  Gauge& max_fds = process("max_fds", "File descriptors that may be open");
  Gauge& threads = process("threads", "Threads of this process");
  Gauge& start_time = process("start_time_seconds", "When this process started, Unix time");
  Counter& cpu = prometheus::BuildCounter()
                     .Name("process_cpu_seconds_total")
                     .Help("CPU time of all threads")
                     .Register(registry)
                     .Add({});
};

Metrics::Metrics(const std::string& model_name, std::map<std::string, std::string> cache_info)
    : impl_(std::make_unique<Impl>(model_name, std::move(cache_info))) {}
Metrics::~Metrics() = default;

void Metrics::request_received(int prompt_tokens, int max_tokens, int n) {
  impl_->received.Increment();
  impl_->prompt_sizes.Observe(prompt_tokens);
  impl_->choices.Observe(n);
  for (int i = 0; i < n; ++i) impl_->limits.Observe(max_tokens);
}

void Metrics::sequence_admitted(double queued_seconds, int prompt_tokens, int cached_tokens) {
  ++impl_->admitted;
  impl_->admitted_hits += cached_tokens > 0;
  impl_->queue.Observe(queued_seconds);
  impl_->computed.Observe(prompt_tokens - cached_tokens);
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
  if (ended.generated > 1)
    impl_->mean_per_token.Observe(ended.since_first_token / (ended.generated - 1));
}

void Metrics::request_ended(bool success, double since_arrival, int longest) {
  if (!success) return;
  impl_->latency.Observe(since_arrival);
  impl_->last_latency.Set(since_arrival);
  impl_->longest_replies.Observe(longest);
}

void Metrics::refused(Refusal reason) {
  impl_->refusals.at(static_cast<size_t>(reason))->Increment();
}

void Metrics::tool_calls(int read, int broken) {
  impl_->calls.Increment(read);
  impl_->broken_calls.Increment(broken);
}

void Metrics::asked(const std::string& route) {
  impl_
      ->counter("requests_by_route_total", "Requests that reached the engine, by endpoint",
                {{"route", route}})
      .Increment();
}

void Metrics::constrained(const std::string& kind, double mask_seconds, uint64_t masks,
                          bool failed) {
  if (const auto found = impl_->constrained.find(kind); found != impl_->constrained.end())
    found->second->Increment();
  impl_->mask_seconds.Increment(mask_seconds);
  impl_->masks.Increment(static_cast<double>(masks));
  if (failed) impl_->unfollowed.Increment();
}

void Metrics::reasoned(int tokens) { impl_->reasoning.Increment(tokens); }

void Metrics::Impl::set_engine(const engine::EngineStats& stats, int max_sequences) {
  running.Set(stats.running);
  waiting.Set(stats.waiting);
  batch.Set(stats.running);
  batch_max.Set(max_sequences);
  batch_free.Set(max_sequences - stats.running);
  raise(preempted, stats.preemptions);
  raise(steps, stats.steps);
  plan.follow(stats.tally.plan);
  launch.follow(stats.tally.launch);
  wait.follow(stats.tally.wait);
  commit.follow(stats.tally.commit);
  rows.follow(stats.tally.rows);
}

void Metrics::Impl::set_cache(const engine::EngineStats& stats) {
  usage.Set(part(stats.blocks_total - stats.blocks_free, stats.blocks_total));
  blocks_free.Set(stats.blocks_free);
  blocks_unused.Set(stats.blocks_unused);
  blocks_total.Set(stats.blocks_total);
  resource.Set(part(stats.blocks_free, stats.blocks_total));
  raise(host_tokens, stats.tiers.host_tokens);
  raise(file_tokens, stats.tiers.file_tokens);
  raise(device_tokens, cache_hits.Value() - host_tokens.Value() - file_tokens.Value());
  raise(tier_failures, stats.tiers.failures);
  raise(tier_skips, stats.tiers.skipped);
  raise(tier_recomputed, stats.tiers.recomputed);
  const double asked = cache_queries.Value();
  hit_rate.Set(part(cache_hits.Value(), asked));
  device_rate.Set(part(device_tokens.Value(), asked));
  host_rate.Set(part(host_tokens.Value(), asked));
  hit_requests.Set(part(static_cast<double>(admitted_hits), static_cast<double>(admitted)));
}

void Metrics::Impl::set_process() {
  const ProcessUse use = process_use();
  resident.Set(use.resident_bytes);
  virtual_memory.Set(use.virtual_bytes);
  open_fds.Set(use.open_fds);
  max_fds.Set(use.max_fds);
  threads.Set(use.threads);
  start_time.Set(use.start_seconds);
  raise(cpu, use.cpu_seconds);
}

namespace {

// Adds the metrics under their aliases. vLLM labels each of its engines; here there is one.
void add_aliases(std::vector<prometheus::MetricFamily>& families) {
  const size_t own = families.size();
  for (size_t i = 0; i < own; ++i)
    for (const std::string& alias : aliases_of(families[i].name)) {
      prometheus::MetricFamily family = families[i];
      family.name = alias;
      if (alias.starts_with("vllm:"))
        for (prometheus::ClientMetric& metric : family.metric)
          metric.label.push_back({"engine", "0"});
      families.push_back(std::move(family));
    }
}

}  // namespace

std::string Metrics::text(const Now& now) {
  Impl& m = *impl_;
  std::lock_guard lock(m.text_mutex);
  m.set_engine(now.engine, now.max_sequences);
  m.set_cache(now.engine);
  m.set_process();
  m.waiting_tokens.Set(static_cast<double>(now.waiting_tokens));
  m.queued_events.Set(static_cast<double>(now.queued_events));
  raise(m.log_dropped, now.observer.log_dropped);
  raise(m.spans_dropped, now.observer.spans_dropped);
  raise(m.spans_sent, now.observer.spans_sent);
  auto families = m.registry.Collect();
  add_aliases(families);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace skiff::service
