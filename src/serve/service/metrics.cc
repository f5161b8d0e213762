#include "serve/service/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "serve/service/cache_metrics.h"
#include "serve/service/constraint_compiler.h"
#include "serve/service/draft_metrics.h"
#include "serve/service/metric_names.h"
#include "serve/service/metric_registry.h"
#include "serve/service/peer_metrics.h"
#include "serve/service/process_metrics.h"
#include "serve/service/replica_metrics.h"
#include "serve/service/step_metrics.h"

namespace skiff::service {
namespace {

using Bounds = std::vector<double>;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

}  // namespace

struct Metrics::Impl {
  Impl(const std::string& model, std::map<std::string, std::string> cache_info) : registry(model) {
    registry
        .gauge("cache_config_info", "How the KV cache is set up, in its labels; always 1",
               {cache_info.begin(), cache_info.end()})
        .Set(1);
  }

  Counter& counter(const std::string& name, const std::string& help, const Labels& more = {}) {
    return registry.counter(name, help, more);
  }
  Histogram& histogram(const std::string& name, const std::string& help, const Bounds& bounds) {
    return registry.histogram(name, help, bounds);
  }

  MetricRegistry registry;
  std::mutex text_mutex;  // serializes text(), which computes differences

  Counter& received = counter("requests_number", "Requests received");
  Counter& prompt = counter("prompt_tokens_total", "Prompt tokens of admitted sequences");
  Counter& generated = counter("generation_tokens_total", "Tokens generated");
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
  Histogram& reply_sizes =
      histogram("request_generation_tokens", "Tokens generated by a sequence", count_bounds());
  Histogram& longest_replies = histogram("request_max_num_generation_tokens",
                                         "Tokens of a request's longest sequence", count_bounds());
  Histogram& limits =
      histogram("request_params_max_tokens", "max_tokens of a request", count_bounds());
  Histogram& choices = histogram("request_params_n", "n of a request", count_bounds());
  Gauge& waiting_tokens =
      registry.gauge("num_waiting_tokens", "Prompt tokens of sequences that never had a place yet");
  Gauge& queued_events =
      registry.gauge("num_events_queued", "Events of the engine that are not turned into text yet");
  Gauge& last_ttft = registry.gauge("first_token_latency", "Latest time to first token, s");
  Gauge& last_latency = registry.gauge("infer_latency", "Latest request latency, s");

  CacheMetrics cache{registry};
  StepMetrics steps{registry};
  PeerMetrics peers{registry};
  ProcessMetrics process{registry};
  std::optional<DraftMetrics> drafts;  // none where no tokens are drafted
};

Metrics::Metrics(const std::string& model_name, std::map<std::string, std::string> cache_info,
                 int drafts)
    : impl_(std::make_unique<Impl>(model_name, std::move(cache_info))) {
  if (drafts > 0) impl_->drafts.emplace(impl_->registry, drafts);
}
Metrics::~Metrics() = default;

void Metrics::request_received(int prompt_tokens, int max_tokens, int n) {
  impl_->received.Increment();
  impl_->prompt_sizes.Observe(prompt_tokens);
  impl_->choices.Observe(n);
  for (int i = 0; i < n; ++i) impl_->limits.Observe(max_tokens);
}

void Metrics::sequence_admitted(double queued_seconds, int prompt_tokens, int cached_tokens) {
  impl_->queue.Observe(queued_seconds);
  impl_->prompt.Increment(prompt_tokens);
  impl_->cache.admitted(prompt_tokens, cached_tokens);
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
  impl_->registry
      .counter("requests_by_route_total", "Requests that reached the engine, by endpoint",
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

namespace {

// Adds the metrics under their aliases. vLLM labels each of its engines: what is said of a single
// one is labelled so, with its `number`; what several replicas have together, with an empty one, is
// not.
void add_aliases(std::vector<prometheus::MetricFamily>& families, const std::string& number) {
  const size_t own = families.size();
  for (size_t i = 0; i < own; ++i)
    for (const std::string& alias : aliases_of(families[i].name)) {
      prometheus::MetricFamily family = families[i];
      family.name = alias;
      if (!number.empty() && alias.starts_with("vllm:"))
        for (prometheus::ClientMetric& metric : family.metric)
          metric.label.push_back({"engine", number});
      families.push_back(std::move(family));
    }
}

// vLLM counts every end of a sequence in one family, in words of its own.
void add_failures(std::vector<prometheus::MetricFamily>& families) {
  constexpr auto kName = &prometheus::MetricFamily::name;
  const auto from = std::ranges::find(families, "fastdeploy:request_failure_total", kName);
  const auto to = std::ranges::find(families, "vllm:request_success_total", kName);
  if (from == families.end() || to == families.end()) return;
  for (prometheus::ClientMetric metric : from->metric) {
    for (auto& label : metric.label)
      if (label.name == "finished_reason" && label.value == label_of(Finish::kExhausted))
        label.value = "error";
    const auto& labels = to->metric.front().label;
    const auto engine = std::ranges::find(labels, "engine", &prometheus::ClientMetric::Label::name);
    if (engine != labels.end()) metric.label.push_back(*engine);
    to->metric.push_back(std::move(metric));
  }
}

// Adds the metrics of each replica, which replace families of the same name.
void add_replicas(std::vector<prometheus::MetricFamily>& families,
                  std::vector<prometheus::MetricFamily> of_replicas) {
  for (prometheus::MetricFamily& family : of_replicas) {
    const auto same = std::ranges::find(families, family.name, &prometheus::MetricFamily::name);
    if (same != families.end())
      *same = std::move(family);
    else
      families.push_back(std::move(family));
  }
}

}  // namespace

std::string Metrics::text(const Now& now) {
  Impl& m = *impl_;
  std::lock_guard lock(m.text_mutex);
  m.steps.follow(now.engine, now.max_sequences);
  m.cache.follow(now.engine);
  m.peers.follow(now.engine.peers);
  m.process.follow(process_use());
  if (m.drafts) m.drafts->follow(now.engine);
  m.waiting_tokens.Set(static_cast<double>(now.waiting_tokens));
  m.queued_events.Set(static_cast<double>(now.queued_events));
  raise(m.log_dropped, now.observer.log_dropped);
  raise(m.spans_dropped, now.observer.spans_dropped);
  raise(m.spans_sent, now.observer.spans_sent);
  auto families = m.registry.collect();
  const bool single = now.replicas.size() < 2;
  add_aliases(families, single ? std::to_string(now.number) : "");
  add_failures(families);
  if (!single) add_replicas(families, replica_families(m.registry.model_name(), now.replicas));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace skiff::service
