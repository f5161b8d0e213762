#include "serve/service/replica_metrics.h"

#include <algorithm>
#include <utility>

namespace skiff::service {
namespace {

using engine::EngineStats;
using prometheus::MetricFamily;
using prometheus::MetricType;

double used(const EngineStats& stats) {
  if (stats.blocks_total == 0) return 0;
  return static_cast<double>(stats.blocks_total - stats.blocks_free) / stats.blocks_total;
}

struct Row {
  MetricType type;
  const char* name;     // behind fastdeploy:engine_
  const char* aliases;  // vLLM's names, with blanks between them
  const char* help;
  double (*value)(const EngineStats&);
};

constexpr Row kRows[] = {
    {MetricType::Gauge, "num_requests_running", "num_requests_running",
     "Sequences in the batch of a replica", [](auto& s) { return 1.0 * s.running; }},
    {MetricType::Gauge, "num_requests_waiting", "num_requests_waiting",
     "Sequences waiting for a place in a replica", [](auto& s) { return 1.0 * s.waiting; }},
    {MetricType::Gauge, "cache_usage_perc", "gpu_cache_usage_perc kv_cache_usage_perc",
     "KV cache of a replica in use; 1 is all of it", used},
    {MetricType::Counter, "num_preemptions_total", "num_preemptions_total",
     "Sequences of a replica that lost their memory and started again",
     [](auto& s) { return static_cast<double>(s.preemptions); }},
    {MetricType::Counter, "steps_total", "", "Steps that a replica completed",
     [](auto& s) { return static_cast<double>(s.steps); }},
    {MetricType::Counter, "prompt_tokens_total", "prompt_tokens_total prefix_cache_queries_total",
     "Prompt tokens of a replica's admitted sequences",
     [](auto& s) { return static_cast<double>(s.prompt_tokens); }},
    {MetricType::Counter, "cached_tokens_total", "prefix_cache_hits_total",
     "Those found in its prefix cache",
     [](auto& s) { return static_cast<double>(s.cached_tokens); }},
    {MetricType::Counter, "generation_tokens_total", "generation_tokens_total",
     "Tokens that a replica generated",
     [](auto& s) { return static_cast<double>(s.generation_tokens); }},
};

MetricFamily family_of(const Row& row, const std::string& model_name,
                       const std::vector<EngineStats>& replicas) {
  MetricFamily family{
      .name = std::string("fastdeploy:engine_") + row.name, .help = row.help, .type = row.type};
  for (size_t i = 0; i < replicas.size(); ++i) {
    prometheus::ClientMetric metric;
    metric.label = {{"model_name", model_name}, {"engine", std::to_string(i)}};
    (row.type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
        row.value(replicas[i]);
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

std::vector<MetricFamily> replica_families(const std::string& model_name,
                                           const std::vector<EngineStats>& replicas) {
  std::vector<MetricFamily> families;
  for (const Row& row : kRows) {
    families.push_back(family_of(row, model_name, replicas));
    const MetricFamily own = families.back();
    const std::string aliases = row.aliases;
    for (size_t begin = 0; begin < aliases.size();) {
      const size_t end = std::min(aliases.find(' ', begin), aliases.size());
      families.push_back(own);
      families.back().name = "vllm:" + aliases.substr(begin, end - begin);
      begin = end + 1;
    }
  }
  return families;
}

}  // namespace skiff::service
