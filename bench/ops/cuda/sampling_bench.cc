// Sampling on a CUDA device: checked against the CPU backend, which follows the definition in
// ops/ops.h, then timed. The limit is one read of the logits.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "ops/ops.h"

namespace skiff {
namespace {

constexpr int kRows = 256, kVocab = 152064;
constexpr int kSets = 3;  // sets of logits, used in turns: far larger than the L2 cache
constexpr int kRounds = 60;
constexpr double kReadBandwidth = 4.5e12;  // bytes/s of an H200, see docs/performance.md

struct Case {
  const char* name;
  int rows, vocab;
  float temperature, top_p;
  int top_k;
  float min_p = 0;
};
constexpr Case kCases[] = {{"greedy", kRows, kVocab, 0, 1, 0},
                           {"temperature", kRows, kVocab, 1, 1, 0},
                           {"top_p", kRows, kVocab, 0.8f, 0.95f, 0},
                           {"top_k", kRows, kVocab, 0.8f, 1, 50},
                           {"top_k, top_p", kRows, kVocab, 0.8f, 0.95f, 50},
                           {"top_k 1000, top_p", kRows, kVocab, 0.8f, 0.95f, 1000},
                           {"min_p, top_p", kRows, kVocab, 0.8f, 0.95f, 0, 0.01f},
                           {"all three", kRows, kVocab, 0.8f, 0.95f, 50, 0.01f},
                           {"top_k, top_p", 8, kVocab, 0.8f, 0.95f, 50},
                           {"top_p", 64, kVocab, 0.8f, 0.95f, 0},
                           {"top_p", 32, kVocab, 0.8f, 0.95f, 0},
                           {"top_p", 8, kVocab, 0.8f, 0.95f, 0},
                           {"top_p", 1, 128256, 0.8f, 0.95f, 0},
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

  void add(float t, float p, int k, float m) {
    seed.push_back(static_cast<int64_t>(temperature.size()) * 7919);
    draw.push_back(3);
    temperature.push_back(t);
    top_p.push_back(p);
    min_p.push_back(m);
    top_k.push_back(k);
  }
};

Columns columns_of(const Case& c) {
  Columns out;
  for (int r = 0; r < c.rows; ++r) out.add(c.temperature, c.top_p, c.top_k, c.min_p);
  return out;
}

// Makes rows that cycle through the kinds of draws.
Columns all_kinds(int rows) {
  constexpr float kTemperature[] = {0.8f, 0.3f, 1, 1.6f}, kMinP[] = {0, 0, 0.05f, 0.0005f};
  constexpr float kTopP[] = {0.95f, 1, 0.5f, 0.05f, 0.999f, 0.9f, 0.99f};
  constexpr int kTopK[] = {0, 0, 1, 50, 0, 1000, 5, 200, 0, 20, 300};
  Columns out;
  for (int r = 0; r < rows; ++r)
    out.add(kTemperature[r % 4], kTopP[r % 7], kTopK[r % 11], kMinP[r / 4 % 4]);
  return out;
}

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

// Logits of one shape; every case uses the first rows.
struct Shape {
  const char* name;
  std::function<void(std::mt19937&, float*, int)> fill;
};

void fill_normal(std::mt19937& rng, float* x, int n) {
  std::normal_distribution<float> normal(0, 2);
  for (int i = 0; i < n; ++i) x[i] = normal(rng);
}
// A function of the rank alone, the ranks dealt out at random.
template <class F>
void fill_ranks(std::mt19937& rng, float* x, int n, F logit) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng);
  for (int i = 0; i < n; ++i) x[order[static_cast<size_t>(i)]] = logit(static_cast<float>(i));
}
template <class F>
void change(float* x, int n, F f) {
  for (int i = 0; i < n; ++i) x[i] = f(x[i], i);
}

std::vector<Shape> shapes() {
  return {
      {"normal", fill_normal},
      {"peaked",  // a few tokens hold most of the mass, as in trained models
       [](std::mt19937& rng, float* x, int n) {
         fill_ranks(rng, x, n, [](float rank) { return 18 - 2.2f * std::log(1 + rank); });
         std::normal_distribution<float> normal(0, 0.5f);
         change(x, n, [&](float v, int) { return v + normal(rng); });
       }},
      {"long tail",
       [](std::mt19937& rng, float* x, int n) {
         fill_ranks(rng, x, n, [](float rank) { return 9 - 1.05f * std::log(1 + rank); });
       }},
      {"one huge",
       [](std::mt19937& rng, float* x, int n) {
         fill_normal(rng, x, n);
         x[static_cast<int>(rng()) & 0x7fff] = 70;
       }},
      {"bf16 values",  // ties everywhere
       [](std::mt19937& rng, float* x, int n) {
         fill_normal(rng, x, n);
         change(x, n, [](float v, int) {
           return std::bit_cast<float>(std::bit_cast<uint32_t>(v) & 0xffff0000u);
         });
       }},
      {"masked",  // all but some tokens are impossible
       [](std::mt19937& rng, float* x, int n) {
         fill_normal(rng, x, n);
         change(x, n, [&](float v, int) { return rng() % 300 ? -INFINITY : v; });
       }},
      {"all equal", [](std::mt19937&, float* x, int n) { std::fill(x, x + n, 1.25f); }},
      {"two values",
       [](std::mt19937& rng, float* x, int n) {
         change(x, n, [&](float, int) { return rng() % 64 ? -1.5f : 4.0f; });
       }},
  };
}

std::vector<float> values_of(const Shape& shape, int rows) {
  std::vector<float> values(static_cast<size_t>(rows) * kVocab);
  std::vector<std::thread> workers;
  const int count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int w = 0; w < count; ++w) {
    workers.emplace_back([&, w] {
      for (int r = w; r < rows; r += count) {
        std::mt19937 rng(static_cast<unsigned>(r) * 7 + 5);
        shape.fill(rng, values.data() + static_cast<size_t>(r) * kVocab, kVocab);
      }
    });
  }
  for (std::thread& w : workers) w.join();
  return values;
}

// Returns the seconds of a call; operation(i) is called with each of the kSets sets of logits in
// turn.
template <class F>
double seconds_of(Ops& cuda, F operation) {
  for (int i = 0; i < kSets; ++i) operation(i);
  cuda.wait(cuda.mark());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) operation(i % kSets);
  cuda.wait(cuda.mark());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kRounds;
}

void run(Ops& cuda, Ops& cpu, std::vector<float>& values, const Case& c, Columns params) {
  const Tensor host = host_tensor(values.data(), DType::kF32, {c.rows, c.vocab});
  Buffer sets[kSets], columns[6], ids_memory(cuda.device(), static_cast<size_t>(c.rows) * 4);
  Tensor logits[kSets];
  for (int i = 0; i < kSets; ++i) logits[i] = sent(cuda, host, sets[i]);
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
      "{:<18} {:>4} x {:>6}  {:>8.1f} us  {:>7.1f} GB/s  {:>5.1f}% of one read;  {} of {} as on "
      "the CPU\n",
      c.name, c.rows, c.vocab, seconds * 1e6, size / seconds / 1e9,
      100 * size / seconds / kReadBandwidth, same, c.rows);
}

// The best tokens of both must be the same; the op suite checks how close the logarithms are.
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
      "logprobs {:>2}        {:>4} x {:>6}  {:>8.1f} us  {:>7.1f} GB/s  {:>5.1f}% of one read;  "
      "{}\n",
      c.top, c.rows, c.vocab, seconds * 1e6, size / seconds / 1e9,
      100 * size / seconds / kReadBandwidth,
      got == want && got_rank == want_rank ? "as on the CPU" : "NOT as on the CPU");
}

// Times the edits of rows by a list of all tokens, which the rows share or each has for itself.
// (Penalties: bench/sample/bench_penalties.cc.)
struct EditCase {
  const char* name;
  int rows, entries;
  bool shared;
};
constexpr EditCase kEditCases[] = {{"bias of all tokens", 64, kVocab, true},
                                   {"the same, lists apart", 64, kVocab, false}};

void run_edits(Ops& cuda, const EditCase& c) {
  constexpr int kPage = 1024;
  const int each = (c.entries + kPage - 1) / kPage, lists = c.shared ? 1 : c.rows;
  const int64_t pages = int64_t{each} * lists, pieces = int64_t{each} * c.rows;
  const size_t size = static_cast<size_t>(pages) * kPage * 4;
  Buffer logits_memory(cuda.device(), static_cast<size_t>(c.rows) * kVocab * 4);
  Buffer page_memory(cuda.device(), 2 * size), from = Buffer::pinned(2 * size);
  const Tensor logits = logits_memory.view(DType::kF32, {c.rows, kVocab});
  const EditPages there{.token = page_memory.view(DType::kI32, {pages, kPage}),
                        .add = page_memory.view(DType::kF32, {pages, kPage}, size)};
  const Tensor tokens = from.view(DType::kI32, {pages, kPage}),
               adds = from.view(DType::kF32, {pages, kPage}, size);
  for (int64_t i = 0; i < pages * kPage; ++i) {
    const auto at = static_cast<int32_t>(i % (int64_t{each} * kPage));
    tokens.as<int32_t>()[i] = at % kVocab;
    adds.as<float>()[i] = 0;
  }
  cuda.copy(there.token, tokens);
  cuda.copy(there.add, adds);
  Buffer arrays[4];
  const auto array = [&](int n, auto value) {
    arrays[n] = Buffer::pinned(static_cast<size_t>(pieces) * 4);
    const Tensor out = arrays[n].view(DType::kI32, {pieces});
    for (int64_t i = 0; i < pieces; ++i) out.as<int32_t>()[i] = static_cast<int32_t>(value(i));
    return out;
  };
  const LogitEdits edits{
      .row = array(0, [&](int64_t i) { return i / each; }),
      .page = array(1, [&](int64_t i) { return i % pages; }),
      .count = array(
          2, [&](int64_t i) { return std::min<int64_t>(kPage, c.entries - i % each * kPage); }),
      .first = array(3, [&](int64_t i) { return i % each * kPage; })};
  const double seconds = seconds_of(cuda, [&](int) { cuda.edit_logits(logits, there, edits); });
  fmt::print("edits: {:<22} {:>4} rows x {:>6} entries  {:>8.1f} us\n", c.name, c.rows, c.entries,
             seconds * 1e6);
}

// Masks of a grammar in page-locked host memory, as a step has them. What they leave of the logits
// is compared with the definition first.
struct MaskCase {
  int rows, vocab;
};
constexpr MaskCase kMaskCases[] = {{1, 151936}, {16, 151936}, {128, 151936}, {256, 151936}};

void run_masks(Ops& cuda, const MaskCase& c) {
  const int words = (c.vocab + 31) / 32;
  Buffer allowed_memory = Buffer::pinned(static_cast<size_t>(c.rows * words) * 4);
  Buffer rows_memory = Buffer::pinned(static_cast<size_t>(c.rows) * 4), logits_memory;
  const Tensor allowed = allowed_memory.view(DType::kI32, {c.rows, words});
  const Tensor rows = rows_memory.view(DType::kI32, {c.rows});
  std::mt19937 rng(7);
  std::generate_n(allowed.as<int32_t>(), c.rows * words,
                  [&] { return static_cast<int32_t>(rng()); });
  std::iota(rows.as<int32_t>(), rows.as<int32_t>() + c.rows, 0);
  std::vector<float> values(static_cast<size_t>(c.rows) * static_cast<size_t>(c.vocab), 1);
  const Tensor host = host_tensor(values.data(), DType::kF32, {c.rows, c.vocab});
  const Tensor logits = sent(cuda, host, logits_memory);
  cuda.mask_logits(logits, rows, allowed);
  cuda.copy(host, logits);
  cuda.wait(cuda.mark());
  int64_t wrong = 0;
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t t = 0; t < c.vocab; ++t) {
      const auto word = static_cast<uint32_t>(allowed.as<int32_t>()[r * words + t / 32]);
      wrong += host.as<float>()[r * c.vocab + t] != (word >> (t % 32) & 1 ? 1 : -INFINITY);
    }
  const double seconds = seconds_of(cuda, [&](int) { cuda.mask_logits(logits, rows, allowed); });
  fmt::print("masks: {:>4} rows x {:>6}  {:>8.1f} us  {:>6.1f} GB/s of masks;  {}\n", c.rows,
             c.vocab, seconds * 1e6, 4.0 * c.rows * words / seconds / 1e9,
             wrong == 0 ? "as defined" : "NOT as defined");
}

}  // namespace
}  // namespace skiff

// Times all shapes of rows, each with one kind of draw and with all kinds, and the first shape with
// the cases above. "short" leaves the other shapes out.
int main(int argc, char** argv) {
  using namespace skiff;
  const auto cuda = make_cuda_ops({});
  const auto cpu = make_cpu_ops(0);
  const bool brief = argc > 1 && std::string_view(argv[1]) == "short";
  for (const EditCase& c : kEditCases) run_edits(*cuda, c);
  for (const MaskCase& c : kMaskCases) run_masks(*cuda, c);
  bool first = true;
  for (const Shape& shape : shapes()) {
    std::vector<float> values = values_of(shape, kRows);
    fmt::print("{}\n", shape.name);
    if (first) {
      for (const auto& c : kCases) run(*cuda, *cpu, values, c, columns_of(c));
      for (const auto& c : kTopCases) run_top(*cuda, *cpu, values, c);
    } else {
      const Case c{"top_p", kRows, kVocab, 0.8f, 0.95f, 0};
      run(*cuda, *cpu, values, c, columns_of(c));
    }
    const Case mixed{.name = "all kinds", .rows = kRows, .vocab = kVocab};
    run(*cuda, *cpu, values, mixed, all_kinds(kRows));
    first = false;
    if (brief) break;
  }
}
