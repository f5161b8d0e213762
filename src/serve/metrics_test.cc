// Names, types and bounds of /metrics, which dashboards rely on.
#include "serve/service/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "serve/openai/server_testing.h"
#include "serve/service/metric_names.h"
#include "serve/service/process_metrics.h"

namespace skiff::serve {
namespace {

using testing::HasSubstr;

std::map<std::string, std::string> types_in(const std::string& text) {
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string hash, what, name, type;
    words >> hash >> what >> name >> type;
    if (hash == "#" && what == "TYPE") types[name] = type;
  }
  return types;
}

std::vector<double> bounds_in(const std::string& text, const std::string& name) {
  std::vector<double> bounds;
  const std::regex bucket(name + "_bucket\\{[^}]*le=\"([^\"+]+)\"");
  for (std::sregex_iterator it(text.begin(), text.end(), bucket), end; it != end; ++it)
    bounds.push_back(std::stod((*it)[1]));
  return bounds;
}

double value_of(const std::string& text, const std::string& series) {
  const size_t at = text.find("\n" + series + " ");
  EXPECT_NE(at, std::string::npos) << series;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
}

service::Metrics make_metrics() {
  return service::Metrics("m", {{"block_size", "64"}, {"num_gpu_blocks", "7"}});
}

const char* const kGauges[] = {"num_requests_running",    "num_requests_waiting",
                               "num_waiting_tokens",      "num_events_queued",
                               "gpu_cache_usage_perc",    "batch_size",
                               "max_batch_size",          "available_batch_size",
                               "available_gpu_block_num", "free_gpu_block_num",
                               "max_gpu_block_num",       "available_gpu_resource",
                               "cache_config_info",       "hit_req_rate",
                               "hit_token_rate",          "cpu_hit_token_rate",
                               "gpu_hit_token_rate",      "first_token_latency",
                               "infer_latency",           "pd_leases",
                               "pd_connections",          "prefix_cache_tier_waiting_num"};
const char* const kCounters[] = {"requests_number",
                                 "requests_number_total",
                                 "request_success_total",
                                 "request_failure_total",
                                 "requests_refused_total",
                                 "prompt_tokens_total",
                                 "generation_tokens_total",
                                 "num_preemptions_total",
                                 "steps_total",
                                 "tool_calls_total",
                                 "tool_call_parse_failures_total",
                                 "constrained_requests_total",
                                 "constraint_failures_total",
                                 "constraint_masks_total",
                                 "constraint_mask_seconds_total",
                                 "reasoning_tokens_total",
                                 "pd_transferred_blocks_total",
                                 "pd_transferred_bytes_total",
                                 "pd_transfer_seconds_total",
                                 "pd_prompts_total",
                                 "pd_recomputed_tokens_total",
                                 "request_log_dropped_total",
                                 "trace_spans_dropped_total",
                                 "trace_spans_sent_total",
                                 "prefix_cache_queries_total",
                                 "prefix_cache_hits_total",
                                 "prefix_cache_token_num",
                                 "prefix_cache_token_num_total",
                                 "prefix_gpu_cache_token_num",
                                 "prefix_gpu_cache_token_num_total",
                                 "prefix_cpu_cache_token_num",
                                 "prefix_cpu_cache_token_num_total",
                                 "prefix_ssd_cache_token_num",
                                 "prefix_ssd_cache_token_num_total",
                                 "prefix_cache_tier_failures_total",
                                 "prefix_cache_tier_skipped_total",
                                 "prefix_cache_tier_recomputed_total",
                                 "send_cache_failed_num",
                                 "send_cache_failed_num_total"};
const char* const kHistograms[] = {"time_to_first_token_seconds",
                                   "time_per_output_token_seconds",
                                   "request_time_per_output_token_seconds",
                                   "e2e_request_latency_seconds",
                                   "request_inference_time_seconds",
                                   "request_queue_time_seconds",
                                   "request_prefill_time_seconds",
                                   "request_decode_time_seconds",
                                   "request_prompt_tokens",
                                   "request_generation_tokens",
                                   "request_max_num_generation_tokens",
                                   "request_params_max_tokens",
                                   "request_params_n",
                                   "request_prefill_kv_computed_tokens",
                                   "step_duration_seconds",
                                   "step_rows"};
const std::map<std::string, std::string> kForVllm = {
    {"num_requests_running", "gauge"},
    {"num_requests_waiting", "gauge"},
    {"kv_cache_usage_perc", "gauge"},
    {"gpu_cache_usage_perc", "gauge"},
    {"cache_config_info", "gauge"},
    {"prefix_cache_queries_total", "counter"},
    {"prefix_cache_hits_total", "counter"},
    {"num_preemptions_total", "counter"},
    {"prompt_tokens_total", "counter"},
    {"generation_tokens_total", "counter"},
    {"request_success_total", "counter"},
    {"iteration_tokens_total", "histogram"},
    {"time_to_first_token_seconds", "histogram"},
    {"inter_token_latency_seconds", "histogram"},
    {"time_per_output_token_seconds", "histogram"},
    {"request_time_per_output_token_seconds", "histogram"},
    {"e2e_request_latency_seconds", "histogram"},
    {"request_queue_time_seconds", "histogram"},
    {"request_inference_time_seconds", "histogram"},
    {"request_prefill_time_seconds", "histogram"},
    {"request_decode_time_seconds", "histogram"},
    {"request_prompt_tokens", "histogram"},
    {"request_generation_tokens", "histogram"},
    {"request_max_num_generation_tokens", "histogram"},
    {"request_params_max_tokens", "histogram"},
    {"request_params_n", "histogram"},
    {"request_prefill_kv_computed_tokens", "histogram"}};

std::map<std::string, std::string> expected_types() {
  std::map<std::string, std::string> all{{"process_resident_memory_bytes", "gauge"},
                                         {"process_virtual_memory_bytes", "gauge"},
                                         {"process_open_fds", "gauge"},
                                         {"process_max_fds", "gauge"},
                                         {"process_threads", "gauge"},
                                         {"process_start_time_seconds", "gauge"},
                                         {"process_cpu_seconds_total", "counter"}};
  for (const char* name : kGauges) all[std::string("fastdeploy:") + name] = "gauge";
  for (const char* name : kCounters) all[std::string("fastdeploy:") + name] = "counter";
  for (const char* name : kHistograms) all[std::string("fastdeploy:") + name] = "histogram";
  for (const auto& [name, type] : kForVllm) all["vllm:" + name] = type;
  for (const char* name : {"request_duration", "time_to_first_token", "time_per_output_token"})
    all[fmt::format("gen_ai_server_{}_seconds", name)] = "histogram";
  return all;
}

TEST(MetricsTest, EveryNameHasItsType) {
  EXPECT_EQ(types_in(make_metrics().text({})), expected_types());
}

TEST(MetricsTest, FastDeploysBoundsAreThereAndTheTailsAreLonger) {
  const std::vector<double> first_token{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1};
  const std::vector<double> token{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1};
  const std::vector<double> latency{.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
  std::vector<double> count;
  for (double decade = 1; decade <= 10000; decade *= 10)
    for (double step : {1., 2., 5.})
      if (step * decade <= 33792) count.push_back(step * decade);
  const std::map<std::string, std::vector<double>> bounds{
      {"time_to_first_token_seconds", first_token}, {"time_per_output_token_seconds", token},
      {"e2e_request_latency_seconds", latency},     {"request_inference_time_seconds", latency},
      {"request_queue_time_seconds", latency},      {"request_prefill_time_seconds", latency},
      {"request_decode_time_seconds", latency},     {"request_prompt_tokens", count},
      {"request_generation_tokens", count},         {"request_params_max_tokens", count}};
  service::Metrics metrics = make_metrics();
  metrics.request_received(1, 1, 1);
  const std::string text = metrics.text({});
  for (const auto& [name, wanted] : bounds) {
    const std::vector<double> have = bounds_in(text, "fastdeploy:" + name);
    EXPECT_THAT(have, testing::IsSupersetOf(wanted)) << name;
    EXPECT_TRUE(std::is_sorted(have.begin(), have.end())) << name;
    EXPECT_GE(have.back(), wanted.back()) << name;
  }
  EXPECT_GT(service::first_token_bounds().back(), 1000);
}

TEST(MetricsTest, LabelsTellWhoAndHow) {
  const std::string text = make_metrics().text({});
  EXPECT_THAT(text, HasSubstr("fastdeploy:cache_config_info{block_size=\"64\",model_name=\"m\","
                              "num_gpu_blocks=\"7\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 0\n"));
  for (const char* reason : {"concurrency", "waiting_tokens", "waiting_time", "timeout",
                             "never_fits", "stopping", "paused", "aborted"})
    EXPECT_THAT(text, HasSubstr(fmt::format("reason=\"{}\"}} 0\n", reason)));
}

// With replicas, what one alone may claim is not labelled as its.
TEST(MetricsTest, ReplicasAreToldApart) {
  service::Metrics metrics = make_metrics();
  service::Metrics::Now now;
  now.replicas = {{.running = 3,
                   .blocks_total = 10,
                   .blocks_free = 5,
                   .steps = 7,
                   .prompt_tokens = 200,
                   .cached_tokens = 150,
                   .generation_tokens = 40},
                  {.running = 1, .waiting = 2, .blocks_total = 10, .blocks_free = 10, .steps = 8}};
  now.engine = {.running = 4, .waiting = 2, .blocks_total = 20, .blocks_free = 15, .steps = 15};
  const std::string text = metrics.text(now);
  const auto value = [&](const std::string& name, const std::string& more) {
    return value_of(text, name + "{model_name=\"m\"" + more + "}");
  };
  const std::string first = ",engine=\"0\"", second = ",engine=\"1\"";
  EXPECT_EQ(value("fastdeploy:num_requests_running", ""), 4);
  EXPECT_EQ(value("fastdeploy:engine_num_requests_running", first), 3);
  EXPECT_EQ(value("fastdeploy:engine_num_requests_waiting", second), 2);
  EXPECT_EQ(value("fastdeploy:engine_steps_total", second), 8);
  EXPECT_EQ(value("vllm:num_requests_running", first), 3);
  EXPECT_EQ(value("vllm:num_requests_running", second), 1);
  EXPECT_EQ(value("vllm:kv_cache_usage_perc", first), 0.5);
  EXPECT_EQ(value("vllm:gpu_cache_usage_perc", second), 0);
  EXPECT_EQ(value("vllm:generation_tokens_total", first), 40);
  EXPECT_EQ(value("vllm:prefix_cache_queries_total", first), 200);
  EXPECT_EQ(value("vllm:prefix_cache_hits_total", first), 150);
  EXPECT_THAT(text, testing::Not(HasSubstr("vllm:prefix_cache_queries_total{model_name=\"m\"} ")));
  EXPECT_THAT(text, testing::Not(HasSubstr("vllm:num_requests_running{model_name=\"m\"} ")));
  EXPECT_EQ(value("vllm:request_params_n_count", ""), 0) << "those of requests are of all replicas";
  const auto types = types_in(text);
  EXPECT_EQ(types.at("vllm:num_requests_running"), "gauge");
  EXPECT_EQ(types.at("fastdeploy:engine_steps_total"), "counter");
  now.replicas.pop_back();
  EXPECT_THAT(metrics.text(now), testing::Not(HasSubstr("fastdeploy:engine_")));
}

TEST(MetricsTest, ThoseOfOneReplicaHaveItsNumber) {
  service::Metrics metrics = make_metrics();
  service::Metrics::Now now{.engine = {.running = 3}, .number = 1};
  now.replicas = {now.engine};
  const std::string text = metrics.text(now);
  EXPECT_EQ(value_of(text, "fastdeploy:num_requests_running{model_name=\"m\"}"), 3);
  EXPECT_EQ(value_of(text, "vllm:num_requests_running{model_name=\"m\",engine=\"1\"}"), 3);
  EXPECT_THAT(text, testing::Not(HasSubstr("engine=\"0\"")));
}

// vLLM's family has each end of a sequence; FastDeploy's has good ones alone.
TEST(MetricsTest, FailuresCountAmongTheEndsOfVllm) {
  service::Metrics metrics = make_metrics();
  metrics.sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
  for (int i = 0; i < 2; ++i) metrics.sequence_ended({Finish::kExhausted, 0, 0, 0, 0});
  const auto value = [text = metrics.text({})](const char* name, const char* reason,
                                               const char* more) {
    return value_of(
        text, fmt::format("{}{{finished_reason=\"{}\",model_name=\"m\"{}}}", name, reason, more));
  };
  const char *ends = "vllm:request_success_total", *engine = ",engine=\"0\"";
  EXPECT_EQ(value(ends, "stop", engine), 0);
  EXPECT_EQ(value(ends, "abort", engine), 1);
  EXPECT_EQ(value(ends, "error", engine), 2);
  EXPECT_EQ(value("fastdeploy:request_failure_total", "exhausted", ""), 2);
}

TEST(MetricsTest, EachRefusalCountsForItsReason) {
  service::Metrics metrics = make_metrics();
  for (int i = 0; i < service::kRefusals; ++i)
    for (int times = 0; times <= i; ++times) metrics.refused(static_cast<service::Refusal>(i));
  const std::string text = metrics.text({});
  for (int i = 0; i < service::kRefusals; ++i)
    EXPECT_EQ(value_of(text, fmt::format("fastdeploy:requests_refused_total{{model_name=\"m\","
                                         "reason=\"{}\"}}",
                                         service::label_of(static_cast<service::Refusal>(i)))),
              i + 1);
}

TEST(MetricsTest, MasksEndpointsAndReasoningAreCounted) {
  service::Metrics metrics = make_metrics();
  metrics.asked("/v1/messages");
  metrics.asked("/v1/messages");
  metrics.constrained("regex", 0.25, 10, /*failed=*/false);
  metrics.constrained("regex", 0.5, 20, /*failed=*/true);
  metrics.reasoned(7);
  service::Metrics::Now now;
  now.observer = {.log_dropped = 1, .spans_dropped = 2, .spans_sent = 3};
  metrics.text(now);
  const std::string text = metrics.text(now);  // counts of the observer are added once
  const auto value = [&](const std::string& name, const std::string& more = "") {
    return value_of(text, "fastdeploy:" + name + "{" + more + "}");
  };
  const std::string model = "model_name=\"m\"";
  EXPECT_EQ(value("requests_by_route_total", model + ",route=\"/v1/messages\""), 2);
  EXPECT_EQ(value("constrained_requests_total", "kind=\"regex\"," + model), 2);
  EXPECT_EQ(value("constrained_requests_total", "kind=\"choice\"," + model), 0);
  EXPECT_EQ(value("constraint_mask_seconds_total", model), 0.75);
  EXPECT_EQ(value("constraint_masks_total", model), 30);
  EXPECT_EQ(value("constraint_failures_total", model), 1);
  EXPECT_EQ(value("reasoning_tokens_total", model), 7);
  EXPECT_EQ(value("request_log_dropped_total", model), 1);
  EXPECT_EQ(value("trace_spans_dropped_total", model), 2);
  EXPECT_EQ(value("trace_spans_sent_total", model), 3);
}

TEST(MetricsTest, DraftsAreThereWhereTokensAreDrafted) {
  service::Metrics::Now now;
  EXPECT_THAT(make_metrics().text(now), testing::Not(testing::HasSubstr("spec_decode")));
  service::Metrics metrics("m", {}, /*drafts=*/3);
  now.engine.drafts.count(3, 2);
  now.engine.drafts.count(1, 0);
  metrics.text(now);
  const std::string text = metrics.text(now);  // counts are added once
  const auto value = [&](const std::string& name, const std::string& more = "") {
    return value_of(text, name + "{model_name=\"m\"" + more + "}");
  };
  EXPECT_EQ(value("fastdeploy:spec_decode_num_drafts_total"), 2);
  EXPECT_EQ(value("fastdeploy:spec_decode_num_draft_tokens_total"), 4);
  EXPECT_EQ(value("fastdeploy:spec_decode_num_accepted_tokens_total"), 2);
  EXPECT_EQ(value("fastdeploy:spec_decode_num_emitted_tokens_total"), 4);
  EXPECT_EQ(value("fastdeploy:spec_decode_draft_acceptance_rate"), 0.5);
  EXPECT_NEAR(value("fastdeploy:spec_decode_efficiency"), 4. / 6, 1e-6);
  EXPECT_EQ(value("fastdeploy:spec_decode_mean_accepted_length"), 2);
  EXPECT_EQ(value("fastdeploy:spec_decode_num_accepted_tokens_per_pos_total", ",position=\"1\""),
            1);
  EXPECT_EQ(value("fastdeploy:spec_decode_draft_single_head_acceptance_rate_0"), 0.5);
  EXPECT_THAT(text, testing::HasSubstr("vllm:spec_decode_num_accepted_tokens_per_pos_total"));
  EXPECT_THAT(text, testing::HasSubstr("vllm:spec_decode_num_drafts_total"));
}

// Counts of the engine are added once, however often they are scraped.
TEST(MetricsTest, StepsAreFollowed) {
  service::Metrics metrics = make_metrics();
  service::Metrics::Now now;
  const auto split = [&](const char* what, const char* phase) {
    return value_of(metrics.text(now), fmt::format("fastdeploy:step_duration_seconds_{}{{"
                                                   "model_name=\"m\",phase=\"{}\"}}",
                                                   what, phase));
  };
  for (int round = 1; round <= 3; ++round) {
    now.engine.steps += 2;
    for (const double seconds : {0.25, 0.5}) {
      now.engine.tally.plan.add(seconds);
      now.engine.tally.wait.add(2 * seconds);
    }
    now.engine.tally.rows.add(300);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(split("count", "plan"), 2 * round);
      EXPECT_EQ(split("sum", "plan"), 0.75 * round);
      EXPECT_EQ(split("sum", "wait"), 1.5 * round);
      EXPECT_EQ(split("count", "commit"), 0);
      EXPECT_EQ(value_of(metrics.text(now), "fastdeploy:steps_total{model_name=\"m\"}"), 2 * round);
    }
  }
  const std::string text = metrics.text(now);
  EXPECT_EQ(value_of(text,
                     "vllm:iteration_tokens_total_bucket{model_name=\"m\",engine=\"0\","
                     "le=\"256\"}"),
            0);
  EXPECT_EQ(value_of(text,
                     "vllm:iteration_tokens_total_bucket{model_name=\"m\",engine=\"0\","
                     "le=\"512\"}"),
            3);
}

TEST(MetricsTest, HitsAreSharedOutToTheTiers) {
  service::Metrics metrics = make_metrics();
  metrics.sequence_admitted(0.1, 100, 80);
  metrics.sequence_admitted(0.1, 300, 0);
  service::Metrics::Now now;
  now.engine.tiers = {.host_tokens = 20, .file_tokens = 10, .recomputed = 7, .waiting = 3};
  now.engine.blocks_total = 10;
  now.engine.blocks_free = 8;
  now.engine.blocks_unused = 5;
  const std::string text = metrics.text(now);
  const auto value = [&](const std::string& name) {
    return value_of(text, "fastdeploy:" + name + "{model_name=\"m\"}");
  };
  EXPECT_EQ(value("prefix_cache_token_num"), 80);
  EXPECT_EQ(value("prefix_gpu_cache_token_num"), 50);
  EXPECT_EQ(value("prefix_cpu_cache_token_num"), 20);
  EXPECT_EQ(value("prefix_ssd_cache_token_num"), 10);
  EXPECT_EQ(value("prefix_cache_tier_recomputed_total"), 7);
  EXPECT_EQ(value("prefix_cache_tier_waiting_num"), 3);
  EXPECT_EQ(value("hit_req_rate"), 0.5);
  EXPECT_EQ(value("hit_token_rate"), 0.2);
  EXPECT_EQ(value("gpu_hit_token_rate"), 0.125);
  EXPECT_EQ(value("cpu_hit_token_rate"), 0.05);
  EXPECT_EQ(value("available_gpu_block_num"), 8);
  EXPECT_EQ(value("free_gpu_block_num"), 5);
  EXPECT_EQ(value("gpu_cache_usage_perc"), 0.2);
}

TEST(MetricsTest, TheProcessIsMeasured) {
  const service::ProcessUse before = service::process_use();
  std::vector<std::ifstream> files;
  files.reserve(20);
  for (int i = 0; i < 20; ++i) files.emplace_back("/proc/self/stat");
  std::vector<char> memory(64 << 20);
  for (size_t i = 0; i < memory.size(); i += 512) memory[i] = static_cast<char>(i + 1);
  const service::ProcessUse after = service::process_use();
  EXPECT_EQ(after.open_fds, before.open_fds + 20);
  EXPECT_GT(after.resident_bytes, before.resident_bytes + (60 << 20));
  EXPECT_LT(after.resident_bytes, after.virtual_bytes);
  EXPECT_GE(after.threads, 1);
  EXPECT_GE(after.max_fds, after.open_fds);
  EXPECT_GE(after.cpu_seconds, before.cpu_seconds);
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(after.start_seconds, now + 2);
  EXPECT_GT(after.start_seconds, now - 86400);
}

TEST(MetricsTest, ARequestIsSeenInAllOfThem) {
  openai::TestServer server;
  EXPECT_EQ(server.complete({{"prompt", "abcdef"}, {"n", 2}, {"temperature", 0}}).status, 200);
  const std::string text = server.echo.service.metrics();
  const auto value = [&](const std::string& name) {
    return value_of(text, "fastdeploy:" + name + "{model_name=\"echo\"}");
  };
  EXPECT_EQ(value("requests_number"), 1);
  EXPECT_EQ(value("prompt_tokens_total"), 14);
  EXPECT_EQ(value("generation_tokens_total"), 14);
  EXPECT_EQ(value("request_params_n_sum"), 2);
  EXPECT_EQ(value("request_max_num_generation_tokens_sum"), 7);
  EXPECT_EQ(value("request_prefill_kv_computed_tokens_sum"), 14);
  EXPECT_EQ(value("time_per_output_token_seconds_count"), 12);
  EXPECT_EQ(value("request_time_per_output_token_seconds_count"), 2);
  EXPECT_EQ(value("e2e_request_latency_seconds_count"), 1);
}

std::string read(const std::string& path) {
  std::ifstream file(std::string(SKIFF_SOURCE_DIR) + "/" + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The queries of the dashboard.
void find_queries(const Json& node, std::vector<std::string>& out) {
  if (node.is_object() && node.contains("expr")) out.push_back(node["expr"].get<std::string>());
  if (node.is_structured())
    for (const Json& child : node) find_queries(child, out);
}

std::set<std::string> names_in(const std::string& query) {
  std::set<std::string> names;
  const std::regex name("((fastdeploy|vllm):|process_)[a-zA-Z0-9_]+");
  for (std::sregex_iterator it(query.begin(), query.end(), name), end; it != end; ++it)
    names.insert(it->str());
  return names;
}

// Those of the router and of the shared queue are no metrics of the service;
// tests/api/test_deploy.py holds them against whole programs.
bool is_of_others(const std::string& query) {
  return query.find("skiff_router_") != std::string::npos ||
         query.find("fastdeploy:shared_queue_") != std::string::npos;
}

TEST(DashboardTest, EveryMetricThatItAsksForIsThere) {
  const Json dashboard = Json::parse(read("deploy/grafana/skiff.json"));
  std::vector<std::string> queries;
  find_queries(dashboard, queries);
  EXPECT_GE(queries.size(), 25u);
  service::Metrics metrics("m", {{"block_size", "64"}}, /*drafts=*/5);
  metrics.asked("/v1/completions");  // endpoints are there once somebody has called one
  const auto types = types_in(metrics.text({.replicas = {{}, {}}}));
  std::set<std::string> series;
  for (const auto& [name, type] : types) {
    series.insert(name);
    if (type != "histogram") continue;
    series.erase(name);
    for (const char* end : {"_bucket", "_sum", "_count"}) series.insert(name + end);
  }
  for (const std::string& query : queries) {
    if (is_of_others(query)) continue;
    const auto names = names_in(query);
    EXPECT_FALSE(names.empty()) << query;
    for (const std::string& name : names)
      EXPECT_TRUE(series.contains(name)) << name << " " << query;
  }
}

TEST(DashboardTest, RatesAreOfCountersOnly) {
  std::vector<std::string> queries;
  find_queries(Json::parse(read("deploy/grafana/skiff.json")), queries);
  service::Metrics metrics = make_metrics();
  metrics.asked("/v1/completions");
  const auto types = types_in(metrics.text({}));
  for (const std::string& query : queries)
    for (const std::string& name : names_in(query)) {
      const auto type = types.find(name);
      if (type == types.end()) continue;  // a part of a histogram
      const bool rated = query.find("rate(" + name) != std::string::npos;
      EXPECT_EQ(rated, type->second == "counter") << query;
    }
}

}  // namespace
}  // namespace skiff::serve
