// Times the scheduler without a model: planning and committing with all sequences running and a
// long queue, matching a long prompt, and the cost of the prefix cache where it finds nothing.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/check.h"
#include "sched/scheduler.h"

namespace skiff::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRunning = 256, kWaiting = 2000, kPrompt = 1000, kBlock = 64;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  SKIFF_CHECK(!values.empty());
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

NewSequence request(SeqId id, int prompt, std::mt19937& rng) {
  NewSequence s{.id = id};
  for (int i = 0; i < prompt; ++i) s.prompt.push_back(static_cast<Token>(rng() % 100000));
  s.stop.max_tokens = 4000;
  return s;
}

StepResult answer(const StepPlan& plan) {
  StepResult result{.step = plan.step};
  for (const Span& span : plan.spans)
    result.tokens.push_back(span.sample ? std::vector<Token>{1} : std::vector<Token>{});
  result.drafts.resize(plan.spans.size());
  result.logprobs.resize(plan.spans.size());
  result.prompt_logprobs.resize(plan.spans.size());
  return result;
}

struct Times {
  double plan = 0, commit = 0;
};

// Medians over decode steps with all sequences running, in microseconds.
Times decode_steps(bool share_prefixes) {
  sched::Limits limits{
      .max_seqs = kRunning, .max_rows = 8192, .max_context = 8192, .max_logit_rows = kRunning};
  kv::CacheIndex cache(kRunning * 80, kBlock, share_prefixes);
  sched::Scheduler scheduler(limits, cache);
  std::mt19937 rng(1);
  for (SeqId id = 0; id < kRunning + kWaiting; ++id)
    SKIFF_CHECK(scheduler.add(request(id, kPrompt, rng)));
  const auto step = [&](Times* times) {
    const auto start = Clock::now();
    const StepPlan plan = scheduler.plan();
    times->plan = micros_since(start);
    const StepResult result = answer(plan);
    const auto middle = Clock::now();
    scheduler.commit(plan, result);
    const auto events = scheduler.take_events();
    times->commit = micros_since(middle);
    return plan.spans.size();
  };
  Times one;
  while (scheduler.stats().running < kRunning) step(&one);
  for (int i = 0; i < 10; ++i) step(&one);
  std::vector<double> plans, commits;
  for (int i = 0; i < 2000; ++i) {
    SKIFF_CHECK(step(&one) == kRunning, "every sequence decodes in every step");
    plans.push_back(one.plan);
    commits.push_back(one.commit);
  }
  SKIFF_CHECK(scheduler.stats().waiting == kWaiting);
  return {median(plans), median(commits)};
}

// Median time to match a prompt of 32K tokens that is entirely cached, in microseconds.
double match() {
  constexpr int kTokens = 32768;
  kv::CacheIndex cache(1024, kBlock, /*share_prefixes=*/true);
  std::mt19937 rng(2);
  const std::vector<Token> tokens = request(0, kTokens, rng).prompt;
  kv::BlockTable table;
  SKIFF_CHECK(cache.grow(table, kTokens));
  cache.publish(table, tokens, kTokens);
  cache.close(table);
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) {
    const auto start = Clock::now();
    const int found = cache.open(table, tokens);
    times.push_back(micros_since(start));
    SKIFF_CHECK(found == kTokens);
    cache.close(table);
  }
  return median(times);
}

int run() {
  const Times with = decode_steps(true), without = decode_steps(false);
  fmt::print("{} running, {} waiting: plan {:.1f} us, commit {:.1f} us a step (target: 100 us)\n",
             kRunning, kWaiting, with.plan, with.commit);
  fmt::print("without prefix cache: plan {:.1f} us, commit {:.1f} us\n", without.plan,
             without.commit);
  const double cost = with.plan + with.commit - without.plan - without.commit;
  fmt::print(
      "so the cache costs {:.1f} us a step where nothing is shared: {:.2f} % of a step of 10 "
      "ms (target 0.5)\n",
      cost, cost / 100);
  fmt::print("matching a prompt of 32768 tokens: {:.0f} us (target 1000)\n", match());
  return 0;
}

}  // namespace
}  // namespace skiff::bench

int main() { return skiff::bench::run(); }
