// `skiff bench`: the engine alone, without HTTP or text, against the machine's own limit.
#include <algorithm>
#include <chrono>
#include <random>

#include "apps/bandwidth.h"
#include "apps/bench.h"
#include "apps/commands.h"
#include "arch/cost.h"
#include "base/load_error.h"
#include "base/queue.h"
#include "base/seconds.h"
#include "engine/resolve.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

// What a step of `rows` decodes reads: weights, and keys and values of `context` tokens each.
double step_bytes(const ModelSpec& spec, DType dtype, int rows, double context) {
  const auto kv = static_cast<double>(kv_elements(spec));
  return (touched_parameters(spec, rows) + rows * context * kv) * static_cast<double>(bytes(dtype));
}

// The device that an engine with this config computes on.
double memory_bandwidth(const EngineConfig& config) {
  const Device device = device_of(config);
  return device == Device{} ? measured_read_bandwidth(config.threads)
                            : measured_copy_bandwidth(device);
}

// Of all tokens, how many are the same in both.
double alike(const std::vector<std::vector<Token>>& a, const std::vector<std::vector<Token>>& b) {
  double same = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t t = 0; t < a[i].size(); ++t, ++all) same += t < b[i].size() && a[i][t] == b[i][t];
  return all > 0 ? same / all : 0;
}

std::vector<Token> random_prompt(std::mt19937& rng, int vocab, int length) {
  std::vector<Token> tokens(static_cast<size_t>(length));
  for (Token& t : tokens) t = static_cast<Token>(rng() % static_cast<uint32_t>(vocab));
  return tokens;
}

class Bench {
 public:
  Bench(const Args& args, EngineConfig config)
      : input_(static_cast<int>(args.integer("input-len"))),
        output_(static_cast<int>(args.integer("output-len"))),
        batch_(static_cast<int>(args.integer("batch-size"))) {
    config.max_num_seqs = std::max(config.max_num_seqs, batch_);
    if (config.max_model_len == 0) config.max_model_len = input_ + output_ + 1;
    config.prefix_caching = false;                                 // every prompt is computed
    if (config.long_prompt == 0) config.long_prompt = input_ + 1;  // and none gives way
    bandwidth_ = memory_bandwidth(config);
    llm_ = Llm::start(config, [this](std::vector<Event> e) { events_.push(std::move(e)); });
  }

  struct Outcome {
    std::vector<std::vector<Token>> tokens;
    double seconds = 0;
    double first_token = 0, all_first = 0;      // until somebody, and until everybody, had a token
    double first_end = 0;                       // until somebody had all
    size_t at_all_first = 0, at_first_end = 0;  // tokens by then
  };

  // All prompts at once, greedy, exactly output-len tokens each.
  Outcome run(const std::vector<std::vector<Token>>& prompts) {
    Outcome out{.tokens = std::vector<std::vector<Token>>(prompts.size())};
    const auto start = Clock::now();
    const SeqId base = next_id_;
    for (const auto& prompt : prompts)
      llm_->submit({.id = next_id_++,
                    .prompt = prompt,
                    .params = {.temperature = 0},
                    .stop = {.max_tokens = output_}});
    size_t started = 0, said = 0;
    for (size_t done = 0; done < prompts.size();) {
      const auto batch = events_.pop();
      for (const Event& event : *batch) {
        if (event.finish == Finish::kExhausted) fail_load("{}", event.why);
        auto& tokens = out.tokens[event.seq - base];
        said += event.tokens.size();
        if (tokens.empty() && !event.tokens.empty()) {
          if (started++ == 0) out.first_token = seconds_since(start);
          out.all_first = seconds_since(start);
          out.at_all_first = said;
        }
        tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
        if (event.finish != Finish::kNone && done++ == 0) {
          out.first_end = seconds_since(start);
          out.at_first_end = said;
        }
      }
    }
    out.seconds = seconds_since(start);
    return out;
  }

  std::vector<std::vector<Token>> prompts(size_t count) {
    std::vector<std::vector<Token>> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back(random_prompt(rng_, llm_->model().spec.vocab, input_));
    return all;
  }

  void latency() {
    const auto prompt = prompts(static_cast<size_t>(batch_));
    const Outcome warm = run(prompt);
    const EngineStats before = llm_->stats();
    const Outcome timed = run(prompt);
    const EngineStats after = llm_->stats();
    report_check(warm, timed);
    const ModelSpec& spec = llm_->model().spec;
    // While all of them decode and none has ended.
    const double seconds = timed.first_end - timed.all_first;
    const auto tokens = static_cast<double>(timed.at_first_end - timed.at_all_first);
    check(seconds > 0 && timed.at_first_end > timed.at_all_first,
          "the requests never decode all together: raise --output-len");
    const double per_second = tokens / seconds, steps = per_second / batch_;
    const double moved = step_bytes(spec, llm_->config().dtype, batch_, input_ + output_ / 2.0);
    fmt::print("time to first    {:.2f} ms, {:.2f} ms for all {} of {} tokens: {:.0f} tokens/s\n",
               timed.first_token * 1e3, timed.all_first * 1e3, batch_, input_,
               static_cast<double>(batch_) * input_ / timed.all_first);
    fmt::print("decode           {:.3f} ms a step of {}: {:.1f} tokens/s\n", 1e3 / steps, batch_,
               per_second);
    fmt::print(
        "bandwidth        {:.1f} GB/s measured; {:.1f} MB of weights, keys and values a step\n",
        bandwidth_ / 1e9, moved / 1e6);
    fmt::print("of the limit     {:.1f}% ({:.1f} GB/s of {:.1f})\n",
               100 * steps * moved / bandwidth_, steps * moved / 1e9, bandwidth_ / 1e9);
    report_host(before, after);
  }

  // Of the steps between two moments: those of decodes alone, and the others.
  static void report_host(const EngineStats& before, const EngineStats& after) {
    report_host("host, decodes   ", after.tally.decodes - before.tally.decodes);
    report_host("host, the others", after.tally.others - before.tally.others);
  }

  static void report_host(const char* name, const StepSums& sums) {
    if (sums.steps == 0) return;
    const double us = 1e6 / static_cast<double>(sums.steps);
    fmt::print(
        "{} {:.0f} us to plan, {:.0f} to launch, {:.0f} to commit: {:.0f} us a step; it waited "
        "{:.0f} "
        "us\n",
        name, sums.plan * us, sums.launch * us, sums.commit * us,
        (sums.plan + sums.launch + sums.commit) * us, sums.wait * us);
  }

  void throughput(size_t count) {
    const auto all = prompts(count);
    const Outcome alone = run({all.front()});
    const Outcome timed = run(all);
    report_check(alone, timed);
    const double out = static_cast<double>(count) * output_,
                 in = static_cast<double>(count) * input_;
    fmt::print("requests         {} of {} + {} tokens, at most {} at a time: {:.2f} s\n", count,
               input_, output_, llm_->config().max_num_seqs, timed.seconds);
    fmt::print(
        "throughput       {:.2f} requests/s, {:.1f} output tokens/s, {:.1f} tokens/s in all\n",
        static_cast<double>(count) / timed.seconds, out / timed.seconds,
        (in + out) / timed.seconds);
  }

 private:
  // The requests of `first`, asked again. Where results may depend on company, close scores of
  // random weights fall either way after some tokens, but not at once.
  void report_check(const Outcome& first, const Outcome& again) const {
    const double same = alike(first.tokens, again.tokens);
    for (const auto& tokens : again.tokens)
      check(std::ssize(tokens) == output_, "a reply has not as many tokens as were asked for");
    check(same == 1 || !llm_->batch_invariant(), "a request asked again gave other tokens");
    size_t starts = 0;
    for (size_t i = 0; i < first.tokens.size(); ++i)
      starts += first.tokens[i].front() == again.tokens[i].front();
    check(2 * starts >= first.tokens.size(), "most requests asked again began otherwise");
    fmt::print("checked          asked again, {:.1f}% of the tokens are the same{}\n", 100 * same,
               llm_->batch_invariant() ? "" : " (company may show in the last bits here)");
  }

  static void check(bool good, const char* problem) {
    if (!good) fail_load("benchmark refused to print a time: {}", problem);
  }

  int input_, output_, batch_;
  double bandwidth_ = 0;
  SeqId next_id_ = 1;
  std::mt19937 rng_{1};
  Queue<std::vector<Event>> events_;
  std::unique_ptr<Llm> llm_;
};

}  // namespace

int run_bench(const Args& args) {
  const auto& words = args.positional();
  const std::string what = words.empty() ? "" : words.front();
  if (what == "serve") return bench_serve(args);
  if (what == "simulate") return bench_simulate(args);
  if (what != "latency" && what != "throughput")
    throw UsageError(
        fmt::format("skiff bench measures latency, throughput, serve or simulate, as in skiff "
                    "bench latency models/demo; not \"{}\"",
                    what));
  const std::string folder = model_folder(args, 1);
  Bench bench(args, engine_config(args, folder));
  if (what == "latency")
    bench.latency();
  else
    bench.throughput(static_cast<size_t>(args.integer("num-prompts")));
  return 0;
}

}  // namespace skiff
