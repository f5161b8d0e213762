// `skiff bench`: the engine alone, without HTTP or text, against the machine's own limit.
#include <chrono>
#include <random>

#include "apps/bandwidth.h"
#include "apps/bench.h"
#include "apps/commands.h"
#include "base/load_error.h"
#include "base/queue.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes of weights that one decoded token must read at batch one.
double active_weight_bytes(const ModelSpec& spec, DType dtype) {
  return active_parameters(spec) * static_cast<double>(bytes(dtype));
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
        output_(static_cast<int>(args.integer("output-len"))) {
    if (config.max_model_len == 0) config.max_model_len = input_ + output_ + 1;
    config.prefix_caching = false;  // every prompt is computed
    llm_ = Llm::start(config, [this](std::vector<Event> e) { events_.push(std::move(e)); });
  }

  struct Outcome {
    std::vector<std::vector<Token>> tokens;
    double seconds = 0, first_token = 0;
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
    for (size_t done = 0; done < prompts.size();) {
      const auto batch = events_.pop();
      for (const Event& event : *batch) {
        if (event.finish == Finish::kExhausted) fail_load("{}", event.why);
        auto& tokens = out.tokens[event.seq - base];
        if (tokens.empty() && !event.tokens.empty() && out.first_token == 0)
          out.first_token = seconds_since(start);
        tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
        done += event.finish != Finish::kNone;
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
    const auto prompt = prompts(1);
    const Outcome warm = run(prompt), timed = run(prompt);
    check(warm.tokens == timed.tokens, "two runs of one prompt gave different tokens");
    const double decode = timed.seconds - timed.first_token;
    const double per_second = decode > 0 ? (output_ - 1) / decode : 0;
    const double limit = measured_read_bandwidth(llm_->config().threads);
    const double moved = active_weight_bytes(llm_->model().spec, llm_->config().dtype);
    fmt::print("checked          two runs gave the same {} tokens\n", output_);
    fmt::print("time to first    {:.2f} ms for {} tokens: {:.0f} tokens/s\n",
               timed.first_token * 1e3, input_, input_ / timed.first_token);
    fmt::print("decode           {:.2f} ms a token: {:.1f} tokens/s\n", 1e3 / per_second,
               per_second);
    fmt::print("read bandwidth   {:.1f} GB/s measured now; {:.1f} MB of weights a token\n",
               limit / 1e9, moved / 1e6);
    fmt::print("of the limit     {:.1f}% ({:.1f} GB/s of {:.1f})\n",
               100 * per_second * moved / limit, per_second * moved / 1e9, limit / 1e9);
  }

  void throughput(size_t count) {
    const auto all = prompts(count);
    const Outcome alone = run({all.front()});
    const Outcome timed = run(all);
    check(alone.tokens.front() == timed.tokens.front(), "company changed a request's tokens");
    const double out = static_cast<double>(count) * output_,
                 in = static_cast<double>(count) * input_;
    fmt::print("checked          the first request gave the same tokens alone and in company\n");
    fmt::print("requests         {} of {} + {} tokens, at most {} at a time: {:.2f} s\n", count,
               input_, output_, llm_->config().max_num_seqs, timed.seconds);
    fmt::print(
        "throughput       {:.2f} requests/s, {:.1f} output tokens/s, {:.1f} tokens/s in all\n",
        static_cast<double>(count) / timed.seconds, out / timed.seconds,
        (in + out) / timed.seconds);
  }

 private:
  static void check(bool good, const char* problem) {
    if (!good) fail_load("benchmark refused to print a time: {}", problem);
  }

  int input_, output_;
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
