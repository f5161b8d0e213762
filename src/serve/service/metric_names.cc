#include "serve/service/metric_names.h"

#include <map>

namespace skiff::service {
namespace {

using Names = std::multimap<std::string, std::string>;

// Names that FastDeploy and vLLM share.
constexpr const char* kSame[] = {"num_requests_running",
                                 "num_requests_waiting",
                                 "request_success_total",
                                 "time_to_first_token_seconds",
                                 "time_per_output_token_seconds",
                                 "request_time_per_output_token_seconds",
                                 "e2e_request_latency_seconds",
                                 "request_queue_time_seconds",
                                 "request_prefill_time_seconds",
                                 "request_decode_time_seconds",
                                 "request_inference_time_seconds",
                                 "prompt_tokens_total",
                                 "generation_tokens_total",
                                 "request_prompt_tokens",
                                 "request_generation_tokens",
                                 "request_max_num_generation_tokens",
                                 "request_params_max_tokens",
                                 "request_params_n",
                                 "request_prefill_kv_computed_tokens",
                                 "num_preemptions_total",
                                 "spec_decode_num_drafts_total",
                                 "spec_decode_num_draft_tokens_total",
                                 "spec_decode_num_accepted_tokens_total",
                                 "spec_decode_num_accepted_tokens_per_pos_total",
                                 "prefix_cache_queries_total",
                                 "prefix_cache_hits_total",
                                 "gpu_cache_usage_perc",
                                 "cache_config_info"};

constexpr const char* kBareCounters[] = {"requests_number",
                                         "prefix_cache_token_num",
                                         "prefix_gpu_cache_token_num",
                                         "prefix_cpu_cache_token_num",
                                         "prefix_ssd_cache_token_num",
                                         "send_cache_failed_num"};

Names all_aliases() {
  Names names{
      {"fastdeploy:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"},
      {"fastdeploy:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"},
      {"fastdeploy:step_rows", "vllm:iteration_tokens_total"},
      // OpenTelemetry's gen_ai.server.*, as its rules for Prometheus write them.
      {"fastdeploy:e2e_request_latency_seconds", "gen_ai_server_request_duration_seconds"},
      {"fastdeploy:time_to_first_token_seconds", "gen_ai_server_time_to_first_token_seconds"},
      {"fastdeploy:request_time_per_output_token_seconds",
       "gen_ai_server_time_per_output_token_seconds"}};
  for (const char* same : kSame)
    names.emplace(std::string("fastdeploy:") + same, std::string("vllm:") + same);
  for (const char* bare : kBareCounters)
    names.emplace(std::string("fastdeploy:") + bare, std::string("fastdeploy:") + bare + "_total");
  return names;
}

}  // namespace

const std::vector<double>& first_token_bounds() {
  static const std::vector<double> bounds{.001, .005, .01, .02, .04, .06,  .08, .1, .25,
                                          .5,   .75,  1,   2.5, 5,   7.5,  10,  20, 40,
                                          60,   80,   160, 320, 640, 1280, 2560};
  return bounds;
}

const std::vector<double>& token_bounds() {
  static const std::vector<double> bounds{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                          .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
  return bounds;
}

const std::vector<double>& latency_bounds() {
  static const std::vector<double> bounds{.01, .05, .1, .3, .5, .8, 1,   1.5, 2,   2.5, 5,    10,
                                          15,  20,  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
  return bounds;
}

const std::vector<double>& count_bounds() {
  static const std::vector<double> bounds = [] {
    std::vector<double> all;
    for (double decade = 1; decade <= 1e6; decade *= 10)
      for (double step : {1., 2., 5.}) all.push_back(decade * step);
    return all;
  }();
  return bounds;
}

std::vector<std::string> aliases_of(const std::string& name) {
  static const Names names = all_aliases();
  std::vector<std::string> found;
  const auto [begin, end] = names.equal_range(name);
  for (auto it = begin; it != end; ++it) found.push_back(it->second);
  return found;
}

const char* label_of(Finish finish) {
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

const char* label_of(Refusal reason) {
  switch (reason) {
    case Refusal::kConcurrency:
      return "concurrency";
    case Refusal::kWaitingTokens:
      return "waiting_tokens";
    case Refusal::kWaitingTime:
      return "waiting_time";
    case Refusal::kTimeout:
      return "timeout";
    case Refusal::kNeverFits:
      return "never_fits";
    case Refusal::kStopping:
      return "stopping";
    case Refusal::kPaused:
      return "paused";
    case Refusal::kAborted:
      return "aborted";
  }
  return "other";
}

}  // namespace skiff::service
