// What a bias for every token costs the other sequences of a step, on one thread of the CPU
// backend: 64 rows go through an LM head and are drawn, without biases, with one list of biases for
// all rows, and with a list for each. Checks the drawn tokens against biases added here, then
// prints the milliseconds of a step and its ratio to the step without biases. The kinds take turns
// in one run, and times are those of the thread, so other work on the machine disturbs them less.
//
//   bench_biases [hidden sizes]     default: 32 896; the first is a head that costs almost nothing
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "base/check.h"
#include "sample/sampler.h"

namespace skiff::sample {
namespace {

constexpr int kRows = 64, kVocab = 151936, kRounds = 15;

enum class Biases { kNone, kShared, kOwn };
constexpr std::array kKinds = {Biases::kNone, Biases::kShared, Biases::kOwn};

double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Too small to change how peaked the logits of a step are, which decides what a draw costs.
float bias_of(Biases kind, int row, Token token) {
  const uint64_t seed = kind == Biases::kOwn ? 100 + static_cast<uint64_t>(row) : 99;
  return static_cast<float>(0.02 * uniform_draw(seed, static_cast<uint64_t>(token)) - 0.01);
}

std::unique_ptr<Sampler> make_sampler(Ops& ops, Biases kind, int rows, int vocab, float heat) {
  auto sampler = std::make_unique<Sampler>(Sampler::Limits{.vocab = vocab, .max_slots = rows}, ops);
  for (int r = 0; r < rows; ++r) {
    OpenSlot slot{.slot = r, .params = {.temperature = heat}, .history = {1}, .prompt_len = 1};
    slot.params.seed = static_cast<uint64_t>(r);
    std::vector<std::pair<Token, float>> biases;
    for (Token t = 0; kind != Biases::kNone && t < vocab; ++t)
      biases.emplace_back(t, bias_of(kind, r, t));
    slot.params.logit_bias = std::move(biases);
    sampler->open(slot);
  }
  return sampler;
}

std::vector<DrawRow> all_rows(int rows) {
  std::vector<DrawRow> out(static_cast<size_t>(rows));
  for (int r = 0; r < rows; ++r) out[static_cast<size_t>(r)].slot = r;
  return out;
}

void fill(Tensor t, uint64_t seed, double scale) {
  for (int64_t i = 0; i < t.elements(); ++i)
    t.as<float>()[i] =
        static_cast<float>((uniform_draw(seed, static_cast<uint64_t>(i)) - 0.5) * 2 * scale);
}

void check(Ops& ops) {
  constexpr int kFew = 5, kSmall = 3001;
  for (const Biases kind : kKinds) {
    const Buffer memory(ops.device(), size_t{kFew} * kSmall * sizeof(float));
    const Tensor logits = memory.view(DType::kF32, {kFew, kSmall});
    fill(logits, 3, 0.01);
    std::vector<Token> want;
    for (int r = 0; r < kFew; ++r) {
      std::vector<float> row(logits.row<float>(r), logits.row<float>(r) + kSmall);
      for (Token t = 0; kind != Biases::kNone && t < kSmall; ++t)
        row[static_cast<size_t>(t)] += bias_of(kind, r, t);
      want.push_back(static_cast<Token>(std::ranges::max_element(row) - row.begin()));
    }
    const auto sampler = make_sampler(ops, kind, kFew, kSmall, 0);
    SKIFF_CHECK(sampler->sample(logits, all_rows(kFew)).tokens == want);
  }
  fmt::print("checked: greedy draws are the best tokens after biases\n");
}

// An LM head over random rows, and what is drawn from its logits.
class Steps {
 public:
  Steps(Ops& ops, int64_t hidden, float heat)
      : ops_(ops),
        x_memory_(ops.device(), static_cast<size_t>(kRows * hidden) * sizeof(float)),
        logits_memory_(ops.device(), size_t{kRows} * kVocab * sizeof(float)),
        x_(x_memory_.view(DType::kF32, {kRows, hidden})),
        logits_(logits_memory_.view(DType::kF32, {kRows, kVocab})) {
    Buffer plain(ops.device(), static_cast<size_t>(kVocab * hidden) * sizeof(float));
    const Tensor weight = plain.view(DType::kF32, {kVocab, hidden});
    fill(weight, 1, 60 / std::sqrt(static_cast<double>(hidden)));
    fill(x_, 2, 1);
    head_ = ops.prepare({.weight = weight}, {DType::kF32}, &head_memory_);
    for (const Biases kind : kKinds)
      samplers_.push_back(make_sampler(ops, kind, kRows, kVocab, heat));
  }

  double seconds(size_t kind) {
    const double begin = now();
    ops_.linear(logits_, x_, head_);
    samplers_[kind]->sample(logits_, rows_);
    return now() - begin;
  }

 private:
  Ops& ops_;
  const std::vector<DrawRow> rows_ = all_rows(kRows);
  Buffer x_memory_, logits_memory_, head_memory_;
  Tensor x_, logits_;
  Linear head_;
  std::vector<std::unique_ptr<Sampler>> samplers_;
};

void measure(Ops& ops, int64_t hidden, float heat) {
  Steps steps(ops, hidden, heat);
  std::array<std::vector<double>, kKinds.size()> times;
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      const double took = steps.seconds(kind);
      if (round > 0) times[kind].push_back(took);
    }
  }
  std::array<double, kKinds.size()> median{};
  for (size_t kind = 0; kind < kKinds.size(); ++kind) {
    std::ranges::nth_element(times[kind], times[kind].begin() + kRounds / 2);
    median[kind] = times[kind][kRounds / 2];
  }
  fmt::print(
      "hidden {:>4}, temperature {}: {:>6.1f} ms a step; one list of biases {:+.1f} %, a list "
      "for each row {:+.1f} %\n",
      hidden, heat, median[0] * 1e3, (median[1] / median[0] - 1) * 100,
      (median[2] / median[0] - 1) * 100);
}

}  // namespace
}  // namespace skiff::sample

int main(int argc, char** argv) {
  namespace sample = skiff::sample;
  const std::unique_ptr<skiff::Ops> ops = skiff::make_cpu_ops(1);
  sample::check(*ops);
  fmt::print("{} rows of {} tokens, float32, one thread\n", sample::kRows, sample::kVocab);
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {32, 896};
  for (const int64_t hidden : sizes)
    for (const float heat : {1.0f, 0.0f}) sample::measure(*ops, hidden, heat);
}
