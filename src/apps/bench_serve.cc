// `skiff bench serve`: puts load on a running server, this one or any that speaks OpenAI's
// protocol. `skiff bench simulate` sends the same requests to a simulated machine.
#include <random>

#include "apps/bench.h"
#include "arch/cost.h"
#include "base/json.h"
#include "base/load_error.h"
#include "model/kv_cache.h"
#include "model/loader.h"
#include "workload/serve_bench.h"
#include "workload/simulate.h"
#include "workload/step_table.h"

namespace skiff::apps {
namespace {

// Makes Poisson arrivals: exponential gaps, the same for the same seed, so that two runs send the
// same requests.
void space_out(std::vector<workload::TracedRequest>& requests, double rate, uint64_t seed) {
  std::mt19937_64 rng(seed + 1);
  std::exponential_distribution<double> gap(rate);
  double at = 0;
  for (workload::TracedRequest& request : requests) request.at = at += gap(rng);
}

std::vector<workload::TracedRequest> planned_requests(const Args& args) {
  std::vector<workload::TracedRequest> out;
  const auto count = static_cast<size_t>(args.integer("num-prompts"));
  if (args.given("trace")) {
    out = workload::read_trace(args.text("trace")).requests;
    if (args.given("num-prompts") && out.size() > count) out.resize(count);
    for (workload::TracedRequest& request : out) request.at /= args.number("trace-speed");
  } else {
    out.assign(count, {.at = 0,
                       .input = static_cast<int>(args.integer("input-len")),
                       .output = static_cast<int>(args.integer("output-len")),
                       .hashes = {}});
  }
  if (args.given("request-rate"))
    space_out(out, args.number("request-rate"), static_cast<uint64_t>(args.integer("seed")));
  return out;
}

std::string first_model(workload::LoadClient& client) {
  const auto body = client.get("/v1/models");
  if (!body) fail_load("{}; name the model with --served-model-name", body.error().what);
  const auto json = parse_json(*body);
  if (json && json->is_object() && json->contains("data") && json->at("data").is_array() &&
      !json->at("data").empty() && json->at("data").at(0).is_object())
    return json->at("data").at(0).value("id", "default");
  fail_load("GET /v1/models listed no model; name it with --served-model-name");
}

// Reports latencies of short requests apart from those of long ones.
void print_by_length(const workload::Simulation& run, int long_prompt) {
  std::vector<double> brief, lengthy;
  for (const workload::SimulatedRequest& r : run.requests)
    if (!r.refused) (r.input > long_prompt ? lengthy : brief).push_back(r.first_token - r.arrived);
  for (const auto& [name, waits] : {std::pair{"up to", &brief}, std::pair{"above", &lengthy}}) {
    const workload::Percentiles p = workload::percentiles_of(*waits);
    fmt::print(
        "first token, prompts {} {} tokens: {} requests, p50 {:.0f} ms, p99 {:.0f} ms, max {:.0f} "
        "ms\n",
        name, long_prompt, waits->size(), p.p50 * 1e3, p.p99 * 1e3, p.max * 1e3);
  }
}

void print_simulation(const workload::Simulation& run) {
  std::vector<double> ttft, tpot, e2e;
  double tokens = 0;
  for (const workload::SimulatedRequest& r : run.requests) {
    if (r.refused) continue;
    ttft.push_back(r.first_token - r.arrived);
    e2e.push_back(r.finished - r.arrived);
    if (r.output > 1) tpot.push_back((r.finished - r.first_token) / (r.output - 1));
    tokens += r.output;
  }
  workload::ServeReport report;
  report.sent = static_cast<int>(run.requests.size());
  report.succeeded = static_cast<int>(ttft.size());
  report.good = report.succeeded;
  report.refused = report.sent - report.succeeded;
  report.seconds = run.seconds;
  report.completion = tokens;
  for (const workload::SimulatedRequest& r : run.requests) {
    report.prompt += r.input;
    report.cached += r.cached;
  }
  report.ttft = workload::percentiles_of(ttft);
  report.tpot = workload::percentiles_of(tpot);
  report.e2e = workload::percentiles_of(e2e);
  fmt::print("simulated: {} steps, device busy {:.1f} %, {} preemptions\n{}", run.steps,
             100 * run.busy / std::max(run.seconds, 1e-9), run.preemptions,
             workload::to_text(report));
}

// The server is named by --url alone, or by the word behind `serve`.
std::string server_url(const Args& args) {
  for (const char* name : {"host", "port"})
    if (args.given(name))
      throw UsageError(fmt::format(
          "--{} does not apply to skiff bench serve: name the server as --url http://HOST:PORT",
          name));
  if (args.given("max-concurrency"))
    throw UsageError(
        "--max-concurrency does not apply to skiff bench serve: requests in flight are "
        "--concurrency");
  const std::vector<std::string>& words = args.positional();
  if (words.size() > 2 || (words.size() == 2 && args.given("url")))
    throw UsageError(
        fmt::format("unexpected argument \"{}\" (see skiff bench --help)", words.back()));
  return words.size() == 2 ? words[1] : args.text("url");
}

}  // namespace

int bench_serve(const Args& args) {
  auto url = workload::parse_url(server_url(args));
  if (!url) throw UsageError("--url: " + url.error().what);
  workload::LoadClient client({.server = *url, .api_key = args.text("key")});
  workload::ServeBench bench;
  bench.model = args.given("served-model-name") ? args.text("served-model-name")
                : args.given("model")           ? args.text("model")
                                                : first_model(client);
  bench.chat = args.text("endpoint") == "chat";
  bench.prompt_vocab = static_cast<int>(args.integer("prompt-vocab"));
  if (bench.chat && bench.prompt_vocab > 0)
    throw UsageError("--prompt-vocab: only --endpoint completions takes prompts of token ids");
  bench.requests = planned_requests(args);
  bench.seed = static_cast<uint64_t>(args.integer("seed"));
  bench.concurrency = static_cast<int>(args.integer("concurrency"));
  if (bench.concurrency == 0 && !args.given("trace") && !args.given("request-rate"))
    bench.concurrency = 1;
  bench.slo_ttft = args.number("slo-ttft") / 1e3;
  bench.slo_tpot = args.number("slo-tpot") / 1e3;
  const workload::ServeReport report = workload::run_serve_bench(client, bench);
  fmt::print("{}", args.on("json") ? workload::to_json(report) + "\n" : workload::to_text(report));
  if (report.succeeded == 0) fail_load("no request succeeded");
  return 0;
}

int bench_simulate(const Args& args) {
  const std::string folder = model_folder(args, 1);
  const model::ModelConfig model = model::read_model_config(folder, args.text("model-config-name"));
  const double element = args.number("sim-weight-bytes");
  workload::SimulationSetup setup;
  setup.block_size = static_cast<int>(args.integer("block-size"));
  const double block = static_cast<double>(
      model::KvCache::bytes_per_block(model.spec, setup.block_size, {.dtype = DType::kBF16}));
  setup.time = {.fixed = args.number("sim-step-us") * 1e-6,
                .flop_per_row = 2 * active_parameters(model.spec),
                .flop_per_pair = attention_flops(model.spec),
                .weight_bytes = active_parameters(model.spec) * element,
                .kv_bytes = block / setup.block_size,
                .flops = args.number("sim-tflops") * 1e12,
                .bandwidth = args.number("sim-bandwidth") * 1e9};
  setup.num_blocks = static_cast<int>(args.number("sim-kv-memory") * 1e9 / block);
  if (setup.num_blocks < 1)
    throw UsageError(fmt::format("--sim-kv-memory {} GB holds no block of {:.1f} MB",
                                 args.number("sim-kv-memory"), block / 1e6));
  const auto given = [&](const char* name, int fallback) {
    return args.given(name) && args.integer(name) > 0 ? static_cast<int>(args.integer(name))
                                                      : fallback;
  };
  setup.limits.max_context = given("max-model-len", model.spec.max_context);
  setup.limits.max_seqs = given("max-num-seqs", 256);
  setup.limits.max_rows = given("max-num-batched-tokens", 8192);
  setup.limits.max_logit_rows = setup.limits.max_seqs;
  sched::Policy& policy = setup.limits.policy;
  policy.row_context = doubling_context(model.spec);
  policy.step_seconds = args.number("step-time") / 1e3;
  policy.long_prompt = static_cast<int>(args.integer("long-prefill-token-threshold"));
  const double kv_seconds = setup.time.kv_bytes / setup.time.bandwidth;
  if (args.given("sim-steps")) {
    workload::MeasuredSteps steps = workload::read_steps(
        args.text("sim-steps"), {.doubling = policy.row_context, .seconds = kv_seconds});
    setup.time.decodes = std::move(steps.decodes);
    setup.time.others = std::move(steps.prompts);
  }
  const int long_prompt = sched::default_long_prompt(setup.limits.max_context);
  if (args.text("sim-policy") == "default")
    policy.cost = workload::measured_cost(setup.time, setup.limits.max_rows, policy.row_context);
  if (args.text("sim-policy") == "fifo")
    setup.limits.policy = {.ageing = 0,
                           .long_yields = 0,
                           .yield_tokens = 0,
                           .long_prompt = 1 << 30,
                           .long_chunk = 0,
                           .max_long_partial = 0,
                           .max_overtakes = 0,
                           .reserve = 0};
  std::vector<workload::TracedRequest> requests = planned_requests(args);
  if (args.given("max-input"))
    std::erase_if(requests, [&](const workload::TracedRequest& r) {
      return r.input > args.integer("max-input");
    });
  if (requests.empty()) throw UsageError("--max-input leaves no request");
  const workload::Simulation run = workload::simulate(setup, requests);
  print_simulation(run);
  print_by_length(run, long_prompt);
  return 0;
}

}  // namespace skiff::apps
