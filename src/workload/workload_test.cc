#include <gtest/gtest.h>

#include <random>

#include "workload/simulate.h"

namespace skiff::workload {
namespace {

TEST(Trace, ReadsMooncake) {
  const auto trace = parse_trace(
      "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [7, 8]}\n"
      "{\"timestamp\": 1000, \"input_length\": 513, \"output_length\": 2, \"hash_ids\": [7, 9]}\n");
  ASSERT_TRUE(trace) << trace.error().what;
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[0].at, 0);
  EXPECT_EQ(trace->requests[1].at, 2);
  EXPECT_EQ(trace->requests[1].input, 600);
  const auto a = prompt_of(trace->requests[0], 0, 1000), b = prompt_of(trace->requests[1], 1, 1000);
  EXPECT_EQ(a.size(), 513u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 512, b.begin()));
  EXPECT_NE(a[512], b[512]);
  const auto other = prompt_of(trace->requests[0], 0, 1000, 1);
  EXPECT_NE(a, other) << "another seed";
  EXPECT_TRUE(std::equal(other.begin(), other.begin() + 512,
                         prompt_of(trace->requests[1], 1, 1000, 1).begin()))
      << "what is shared stays shared";
}

TEST(Trace, ReadsAzure) {
  const auto trace = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.5000000,4808,10\r\n"
      "2023-11-17 00:00:01.2500000,34,12");
  ASSERT_TRUE(trace) << trace.error().what;
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_DOUBLE_EQ(trace->requests[1].at, 1.75);
  EXPECT_EQ(trace->requests[0].input, 4808);
  EXPECT_EQ(trace->requests[1].output, 12);
}

TEST(Trace, SaysWhatIsWrongWithALine) {
  for (const char* bad : {"", "TIME,A,B\n", "{\"timestamp\": 1}", "{\"timestamp\": 1",
                          "T,C,G\n2023-11-16 18:17:03,5", "T,C,G\nyesterday,5,5",
                          "T,C,G\n2023-11-16 18:17:03,0,5", "T,C,G\n2023-11-16 18:17:03,5,1e3",
                          "{\"timestamp\": 1, \"input_length\": -4, \"output_length\": 1}",
                          "{\"timestamp\": 1, \"input_length\": 4, \"output_length\": 1e300}"})
    EXPECT_FALSE(parse_trace(bad)) << bad;
}

SimulationSetup small_machine() {
  SimulationSetup setup;
  setup.limits = {.max_seqs = 8, .max_rows = 512, .max_context = 4096, .max_logit_rows = 8};
  setup.num_blocks = 256;
  setup.time = {.fixed = 1e-3,
                .flop_per_row = 1e6,
                .weight_bytes = 1e6,
                .kv_bytes = 10,
                .flops = 1e9,
                .bandwidth = 1e9};
  return setup;
}

TEST(Simulate, OneRequestTakesItsSteps) {
  const SimulationSetup setup = small_machine();
  const Simulation run = simulate(setup, {{.at = 2, .input = 100, .output = 11, .hashes = {}}});
  ASSERT_EQ(run.requests.size(), 1u);
  EXPECT_EQ(run.steps, 11u);
  EXPECT_NEAR(run.requests[0].first_token, 2 + 0.101, 1e-9) << "100 rows of 1 ms, 1 ms fixed";
  EXPECT_NEAR(run.requests[0].finished - run.requests[0].first_token, 10 * 2e-3, 1e-4);
  EXPECT_NEAR(run.busy, run.seconds - 2, 1e-9) << "the device never waits for the host";
}

TEST(Simulate, SharedBlocksAreComputedOnce) {
  const TracedRequest one{.at = 0, .input = 1100, .output = 2, .hashes = {1, 2, 3}};
  TracedRequest two = one;
  two.at = 10;
  const Simulation run = simulate(small_machine(), {one, two});
  EXPECT_EQ(run.requests[0].cached, 0);
  EXPECT_EQ(run.requests[1].cached, 1088) << "17 blocks of 64; one row at least is computed";
}

// Short requests among long ones must wait far less than under first come, first served.
TEST(Simulate, ShortRequestsStayQuickBesideLongOnes) {
  SimulationSetup setup = small_machine();
  setup.limits.policy.long_prompt = 300;
  setup.limits.policy.long_chunk = 32;
  std::vector<TracedRequest> all, only_short;
  for (int i = 0; i < 400; ++i) {
    TracedRequest r{.at = i * 0.6, .input = i % 10 ? 100 : 2500, .output = 4, .hashes = {}};
    all.push_back(r);
    if (r.input == 100) only_short.push_back(r);
  }
  const auto p99 = [&](const sched::Policy& policy, const std::vector<TracedRequest>& requests) {
    setup.limits.policy = policy;
    std::vector<double> waits;
    for (const SimulatedRequest& r : simulate(setup, requests).requests)
      if (r.input == 100) waits.push_back(r.first_token - r.arrived);
    return percentile(waits, 0.99);
  };
  const sched::Policy ours = setup.limits.policy;
  const sched::Policy fifo{.ageing = 0,
                           .long_yields = 0,
                           .yield_tokens = 0,
                           .long_prompt = 1 << 20,
                           .max_long_partial = 0,
                           .max_overtakes = 0,
                           .reserve = 0};
  EXPECT_LE(p99(ours, all), 2.5 * p99(ours, only_short));
  EXPECT_GE(p99(fifo, all), 5 * p99(fifo, only_short)) << "the case is no test otherwise";
}

// Measured steps replace the roofline, and their attention is added.
TEST(Simulate, TakesMeasuredSteps) {
  SimulationSetup setup = small_machine();
  const sched::StepCost::Context context{.doubling = 0, .seconds = 1e-6};
  setup.time.decodes = sched::StepCost({{1, 3e-3}, {8, 4e-3}}, context);
  setup.time.others = sched::StepCost({{1, 5e-3}, {100, 20e-3}}, context);
  const Simulation run = simulate(setup, {{.at = 2, .input = 100, .output = 11, .hashes = {}}});
  EXPECT_NEAR(run.requests[0].first_token, 2 + 20e-3 + 100e-6, 1e-9);
  EXPECT_NEAR(run.requests[0].finished - run.requests[0].first_token, 10 * 3.1e-3, 1e-4);
  EXPECT_EQ(measured_cost(setup.time, 512, 7), setup.time.others);
  const sched::StepCost roofline = measured_cost(small_machine().time, 500, 7);
  EXPECT_EQ(roofline.points().back().rows, 500);
  EXPECT_NEAR(roofline.seconds(500), 0.501, 1e-9) << "1 ms a row, 1 ms fixed";
  EXPECT_EQ(roofline.context().doubling, 7);
}

// The steps' times are known, so the engine plans each when most of the one before it is over.
TEST(Simulate, ARequestThatComesDuringAStepIsInTheNext) {
  SimulationSetup setup = small_machine();
  const double decode = 2e-3,
               prompt = 11e-3;  // the seconds of one row, and of that row and nine more
  const std::vector<TracedRequest> requests{
      {.at = 0, .input = 1, .output = 100, .hashes = {}},
      {.at = 10.25 * decode, .input = 9, .output = 2, .hashes = {}}};
  const auto wait = [&] {
    const SimulatedRequest second = simulate(setup, requests).requests[1];
    return second.first_token - second.arrived;
  };
  EXPECT_NEAR(wait(), 1.75 * decode + prompt, 1e-4);
  setup.limits.policy.cost = measured_cost(setup.time, setup.limits.max_rows, 0);
  EXPECT_NEAR(wait(), 0.75 * decode + prompt, 1e-4);
}

// Prompts of a server that hands them over, at random times. Steps cost what those of a model with
// experts do, so longer ones compute more rows a second, and none is planned ahead.
TEST(Simulate, OneLargePromptInAStepShortensTheLongestWaits) {
  SimulationSetup setup{.limits = {.max_seqs = 64, .max_rows = 8192, .max_logit_rows = 64},
                        .num_blocks = 20000,
                        .depth = 1};
  const sched::StepCost cost({{1, 2.2e-3},
                              {64, 6e-3},
                              {256, 10e-3},
                              {512, 13.5e-3},
                              {1024, 19e-3},
                              {2048, 32e-3},
                              {4096, 60e-3},
                              {8192, 118e-3}},
                             {.doubling = 20000, .seconds = 1e-8});
  setup.time.decodes = setup.time.others = cost;
  sched::Policy mixed;
  mixed.cost = cost;
  const auto p99 = [&](const sched::Policy& policy, const std::vector<TracedRequest>& requests,
                       double& busy) {
    setup.limits.policy = policy;
    const Simulation run = simulate(setup, requests);
    std::vector<double> waits;
    for (const SimulatedRequest& r : run.requests) waits.push_back(r.first_token - r.arrived);
    busy = run.busy;
    return percentile(waits, 0.99);
  };
  for (const bool even : {true, false}) {
    std::mt19937_64 rng(7);
    std::exponential_distribution<> gap(even ? 5 : 20);  // a third, and two thirds of the device
    std::lognormal_distribution<> length(7, 1);
    std::vector<TracedRequest> requests;
    double at = 0;
    for (int i = 0; i < 1000; ++i) {
      const int input = even ? 4096 : std::clamp(static_cast<int>(length(rng)), 16, 16000);
      requests.push_back({.at = at += gap(rng), .input = input, .output = 1, .hashes = {}});
    }
    double before = 0, after = 0;
    EXPECT_LT(p99(sched::prefill_policy(mixed), requests, after),
              0.9 * p99(mixed, requests, before))
        << even;
    EXPECT_LE(after, before) << "the device has no more to do";
  }
}

TEST(Percentile, IsOneOfTheValues) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3}, 0.99), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.75), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 1), 4);
}

}  // namespace
}  // namespace skiff::workload
