// Sampling on a CUDA device: checked against the definition in ops/ops.h, as the CPU backend has
// it, then timed. Limit: one read of the logits.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "ops/ops.h"

namespace skiff {
namespace {

constexpr int kSets = 3;  // of logits, taken in turns: far more than the second-level cache
constexpr int kRounds = 60;
constexpr double kReadBandwidth = 4.5e12;  // of an H200, see docs/performance.md

struct Case {
  const char* name;
  int rows, vocab;
  float temperature, top_p;
  int top_k;
};
constexpr Case kCases[] = {
    {"greedy", 256, 152064, 0, 1, 0},       {"temperature", 256, 152064, 1, 1, 0},
    {"top_p", 256, 152064, 0.8f, 0.95f, 0}, {"top_k, top_p", 256, 152064, 0.8f, 0.95f, 50},
    {"top_p", 64, 152064, 0.8f, 0.95f, 0},  {"top_p", 32, 152064, 0.8f, 0.95f, 0},
    {"top_p", 8, 152064, 0.8f, 0.95f, 0},   {"top_p", 1, 128256, 0.8f, 0.95f, 0},
    {"greedy", 1, 128256, 0, 1, 0}};

struct TopCase {
  int rows, vocab, top;
};
constexpr TopCase kTopCases[] = {
    {128, 128256, 0}, {128, 128256, 5}, {128, 128256, 20}, {1, 128256, 5}};

struct Columns {
  std::vector<float> temperature, top_p, min_p;
  std::vector<int32_t> top_k;
  std::vector<int64_t> seed, draw;
  explicit Columns(const Case& c) {
    const auto n = static_cast<size_t>(c.rows);
    temperature.assign(n, c.temperature);
    top_p.assign(n, c.top_p);
    min_p.assign(n, 0);
    top_k.assign(n, c.top_k);
    for (int r = 0; r < c.rows; ++r) seed.push_back(r * 7919);
    draw.assign(n, 3);
  }
};

template <class T>
Tensor on_host(std::vector<T>& v) {
  return host_tensor(v.data(), dtype_of<T>, {static_cast<int64_t>(v.size())});
}

Tensor sent(Ops& ops, Tensor host, Buffer& memory) {
  memory = Buffer(ops.device(), static_cast<size_t>(host.elements()) * bytes(host.dtype));
  const Tensor out = memory.view(host.dtype, {host.dim[0], host.cols()});
  ops.copy(out, host.reshaped({host.dim[0], host.cols()}));
  ops.wait(ops.mark());
  return out;
}

// Enough for every case: each takes the front.
std::vector<float> random_logits() {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> values(static_cast<size_t>(kCases[0].rows) *
                            static_cast<size_t>(kCases[0].vocab));
  for (float& v : values) v = normal(rng);
  return values;
}

// Seconds of a call; operation(i) is given turns.
template <class F>
double seconds_of(Ops& cuda, F operation) {
  for (int i = 0; i < kSets; ++i) operation(i);
  cuda.wait(cuda.mark());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) operation(i % kSets);
  cuda.wait(cuda.mark());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kRounds;
}

void run(Ops& cuda, Ops& cpu, std::vector<float>& values, const Case& c) {
  const Tensor host = host_tensor(values.data(), DType::kF32, {c.rows, c.vocab});
  Buffer sets[kSets], columns[6], ids_memory(cuda.device(), static_cast<size_t>(c.rows) * 4);
  Tensor logits[kSets];
  for (int i = 0; i < kSets; ++i) logits[i] = sent(cuda, host, sets[i]);
  Columns params(c);
  const SampleBatch on_cpu{.temperature = on_host(params.temperature),
                           .top_p = on_host(params.top_p),
                           .min_p = on_host(params.min_p),
                           .top_k = on_host(params.top_k),
                           .seed = on_host(params.seed),
                           .draw = on_host(params.draw)};
  const SampleBatch batch{.temperature = sent(cuda, on_cpu.temperature, columns[0]),
                          .top_p = sent(cuda, on_cpu.top_p, columns[1]),
                          .min_p = sent(cuda, on_cpu.min_p, columns[2]),
                          .top_k = sent(cuda, on_cpu.top_k, columns[3]),
                          .seed = sent(cuda, on_cpu.seed, columns[4]),
                          .draw = sent(cuda, on_cpu.draw, columns[5])};
  const Tensor ids = ids_memory.view(DType::kI32, {c.rows});
  std::vector<int32_t> want(static_cast<size_t>(c.rows)), got = want;
  cpu.sample(on_host(want), host, on_cpu);
  cuda.sample(ids, logits[0], batch);
  cuda.copy(on_host(got), ids);
  cuda.wait(cuda.mark());
  int same = 0;
  for (size_t i = 0; i < got.size(); ++i) same += got[i] == want[i];
  const double seconds = seconds_of(cuda, [&](int i) { cuda.sample(ids, logits[i], batch); });
  const double size = 4.0 * c.rows * c.vocab;
  fmt::print(
      "{:<14} {:>4} x {:>6}  {:>8.1f} us  {:>7.1f} GB/s  {:>5.1f}% of one read;  {} of {} as on "
      "the CPU\n",
      c.name, c.rows, c.vocab, seconds * 1e6, size / seconds / 1e9,
      100 * size / seconds / kReadBandwidth, same, c.rows);
}

// The best tokens of both must be the same; how near the logarithms are is the suite's.
void run_top(Ops& cuda, Ops& cpu, std::vector<float>& values, const TopCase& c) {
  const Tensor host = host_tensor(values.data(), DType::kF32, {c.rows, c.vocab});
  std::vector<int32_t> chosen;
  for (int r = 0; r < c.rows; ++r) chosen.push_back(r * 997 % c.vocab);
  const auto n = static_cast<size_t>(c.rows), best = n * static_cast<size_t>(std::max(c.top, 1));
  Buffer sets[kSets], chosen_memory, memory[4];
  Tensor logits[kSets];
  for (int i = 0; i < kSets; ++i) logits[i] = sent(cuda, host, sets[i]);
  const Tensor picked = sent(cuda, on_host(chosen), chosen_memory);
  for (size_t i = 0; i < 4; ++i) memory[i] = Buffer(cuda.device(), 4 * (i < 2 ? n : best));
  const Tensor logprob = memory[0].view(DType::kF32, {c.rows}),
               rank = memory[1].view(DType::kI32, {c.rows});
  const Tensor ids = c.top ? memory[2].view(DType::kI32, {c.rows, c.top}) : Tensor{},
               top = c.top ? memory[3].view(DType::kF32, {c.rows, c.top}) : Tensor{};
  std::vector<int32_t> want(c.top ? best : 0), got = want, want_rank(n), got_rank = want_rank;
  std::vector<float> floats(n), top_floats(best);
  const auto of_rows = [&](auto& v) { return on_host(v).reshaped({c.rows, c.top}); };
  cpu.logprobs(on_host(floats), on_host(want_rank), c.top ? of_rows(want) : Tensor{},
               c.top ? of_rows(top_floats) : Tensor{}, host, on_host(chosen));
  cuda.logprobs(logprob, rank, ids, top, logits[0], picked);
  cuda.copy(on_host(got_rank), rank);
  if (c.top) cuda.copy(of_rows(got), ids);
  cuda.wait(cuda.mark());
  const double seconds =
      seconds_of(cuda, [&](int i) { cuda.logprobs(logprob, rank, ids, top, logits[i], picked); });
  const double size = 4.0 * c.rows * c.vocab;
  fmt::print(
      "logprobs {:>2}    {:>4} x {:>6}  {:>8.1f} us  {:>7.1f} GB/s  {:>5.1f}% of one read;  {}\n",
      c.top, c.rows, c.vocab, seconds * 1e6, size / seconds / 1e9,
      100 * size / seconds / kReadBandwidth,
      got == want && got_rank == want_rank ? "as on the CPU" : "NOT as on the CPU");
}

}  // namespace
}  // namespace skiff

int main() {
  const auto cuda = skiff::make_cuda_ops({});
  const auto cpu = skiff::make_cpu_ops(0);
  std::vector<float> values = skiff::random_logits();
  for (const auto& c : skiff::kCases) skiff::run(*cuda, *cpu, values, c);
  for (const auto& c : skiff::kTopCases) skiff::run_top(*cuda, *cpu, values, c);
}
