// bench/ops/cuda/packed_experts_bench.cu -- the two grouped GEMMs of a mixture's packed experts,
// for tokens that decode: right first, then how fast. Tokens choose experts at random, so that
// experts have different numbers of rows.
//
// bench_packed_experts [NAME] [uneven[=SPREAD]] [check]
//   NAME: that model alone; uneven: some experts are chosen more often than others, as a router
//   does (0.4; a mixture of random weights with a bias for each expert: 0.6); check: nothing is
//   timed
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <string_view>

#include "ops/cuda/linear/stream.h"
#include "quant_weights.cuh"

namespace skiff::cuda::bench {
namespace {

struct Mixture {
  const char* name;
  int64_t hidden, width;
  int experts, per_token;
};
constexpr Mixture kMixtures[] = {{"R1/4", 7168, 512, 256, 8},
                                 {"R1", 7168, 2048, 64, 2},  // a quarter of its experts, whole
                                 {"ERNIE-300B/4", 8192, 896, 64, 8},
                                 {"ERNIE-21B", 2560, 1536, 64, 6},
                                 {"V2-Lite", 2048, 1408, 64, 6}};

// How many tokens choose each expert: those with the best sums of what they think of it and of what
// all think of it. The latter spreads so widely.
std::vector<int> rows_of_experts(const Mixture& m, int tokens, uint64_t seed, double spread) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::extreme_value_distribution<double> gumbel;
  std::vector<double> all(static_cast<size_t>(m.experts)), of_token(all.size());
  for (double& v : all) v = spread * normal(random);
  std::vector<int> rows(all.size()), order(all.size());
  for (int t = 0; t < tokens; ++t) {
    for (size_t e = 0; e < all.size(); ++e) of_token[e] = all[e] + gumbel(random);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::partial_sort(order, order.begin() + m.per_token, std::ranges::greater{},
                              [&](int e) { return of_token[static_cast<size_t>(e)]; });
    for (int k = 0; k < m.per_token; ++k)
      ++rows[static_cast<size_t>(order[static_cast<size_t>(k)])];
  }
  return rows;
}

// Copies of tokens by their experts, in jobs of at most `most` rows.
struct Copies {
  int rows = 0, touched = 0;  // copies, and experts that have one
  std::vector<Job> jobs;
  Buffer memory;
  JobList list;

  Copies(const Mixture& m, int tokens, int most, uint64_t seed, double spread) {
    const std::vector<int> of_expert = rows_of_experts(m, tokens, seed, spread);
    for (int e = 0; e < m.experts; ++e) {
      touched += of_expert[static_cast<size_t>(e)] > 0;
      for (int left = of_expert[static_cast<size_t>(e)]; left > 0; left -= most) {
        jobs.push_back({e, rows, std::min(left, most), 0});
        rows += jobs.back().rows;
      }
    }
    const auto n = static_cast<int32_t>(jobs.size());
    memory = Buffer(kDevice, (jobs.size() + 1) * sizeof(Job));
    check(cudaMemcpy(memory.data(), &n, sizeof n, cudaMemcpyHostToDevice), "jobs");
    check(cudaMemcpy(memory.data() + sizeof(Job), jobs.data(), jobs.size() * sizeof(Job),
                     cudaMemcpyHostToDevice),
          "jobs");
    list = {.jobs = reinterpret_cast<const Job*>(memory.data() + sizeof(Job)),
            .count = reinterpret_cast<const int32_t*>(memory.data()),
            .capacity = n};
  }
};

// Keeps two calls apart that never follow each other in a model: both would count claims of tiles
// in the same place.
static __global__ void nothing() {}

struct Context {
  cudaStream_t stream;
  const StreamedProducts& products;
  double spread = 0;    // of experts' popularity
  double apart_us = 0;  // what keeping a call apart takes
  double* worst;
  int checks = 0, failures = 0;
};

// Both products of a mixture.
struct Layer {
  Weight gate_up, down;

  Layer(const Mixture& m, const WeightFormat& f, cudaStream_t stream) {
    make_weight(gate_up, f, m.experts, 2 * m.width, m.hidden, false, 11, stream);
    make_weight(down, f, m.experts, m.hidden, m.width, false, 12, stream);
  }
};

void run_one(const Context& c, const Tensor& out, const Tensor& x, const Linear& w,
             const JobList& jobs, int rows, bool gated) {
  if (gated)
    c.products.grouped_gated(out, x, w, Act::kSilu, jobs, rows, c.stream);
  else
    c.products.grouped(out, x, w, jobs, rows, c.stream);
}

void judge(Context& c, const Tensor& out, const Tensor& x, const Weight& w, const Copies& copies,
           bool gated, const std::string& what) {
  check(cudaStreamSynchronize(c.stream), "a product");
  check(cudaMemset(c.worst, 0, 8), "clearing");
  const int64_t columns = out.cols(), features = gated ? 2 * columns : columns;
  const Check point = {.w = plain_of(w.plain, features, x.cols()),
                       .x = static_cast<const __nv_bfloat16*>(x.data),
                       .out = out.data,
                       .bias = nullptr,
                       .jobs = copies.list.jobs,
                       .x_stride = x.row_stride,
                       .out_stride = out.row_stride,
                       .rows = copies.rows,
                       .out_features = static_cast<int>(columns),
                       .points = static_cast<int>(std::min<int64_t>(copies.rows * columns, 8192)),
                       .job_count = static_cast<int>(copies.jobs.size()),
                       .out_f32 = false,
                       .gated = gated,
                       .worst = c.worst};
  check_quantized<<<1024, 32>>>(point);
  const double e = host<double>(c.worst, 1)[0];
  ++c.checks;
  c.failures += e > 1;
  if (e > 1) std::printf("WRONG %s: %.3g of the bound\n", what.c_str(), e);
}

// Microseconds of one of several calls, each with what keeps them apart.
double time_apart(cudaStream_t stream, const std::function<void()>& f) {
  constexpr int kCalls = 5;
  const auto calls = [&] {
    for (int i = 0; i < kCalls; ++i) {
      f();
      nothing<<<1, 32, 0, stream>>>();
    }
  };
  return graph_us(calls, stream) / kCalls;
}

void measure(Context& c, const Mixture& m, const Named& f, const Layer& layer, int tokens,
             bool timed) {
  const int rows = std::min(
      StreamedProducts::rows_of_jobs(tokens * m.per_token, m.experts, layer.gate_up.prepared),
      StreamedProducts::rows_of_jobs(tokens * m.per_token, m.experts, layer.down.prepared));
  const Copies copies(m, tokens, rows, static_cast<uint64_t>(tokens), c.spread);
  const Tensor x = random(DType::kBF16, {copies.rows, m.hidden}, 5),
               middle = make(DType::kBF16, {copies.rows, m.width}),
               inner = random(DType::kBF16, {copies.rows, m.width}, 6),
               out = make(DType::kBF16, {copies.rows, m.hidden});
  check(cudaDeviceSynchronize(), "filling");
  std::string line;
  for (const bool gated : {true, false}) {
    const Tensor &from = gated ? x : inner, &to = gated ? middle : out;
    const Weight& w = gated ? layer.gate_up : layer.down;
    const auto product = [&] { run_one(c, to, from, w.prepared, copies.list, rows, gated); };
    product();
    judge(c, to, from, w, copies, gated,
          fmt::format("{} {} of {} tokens{}", m.name, f.name, tokens, gated ? " gated" : ""));
    if (!timed) continue;
    const double us = time_apart(c.stream, product) - c.apart_us;
    const double read = static_cast<double>(w.memory.size()) * copies.touched / m.experts;
    line += fmt::format("  {} {:7.1f} us {:5.0f} GB/s ({:2.0f} %)", gated ? "gate and up" : "down",
                        us, read / us / 1e3, 100 * read / us * 1e6 / kReadLimit);
  }
  if (timed)
    std::printf("%-13s %-11s %4d tokens, jobs of %3d:%s\n", m.name, f.name, tokens, rows,
                line.c_str());
  std::fflush(stdout);
  for (const Tensor& t : {x, middle, inner, out}) cudaFree(t.data);
}

int run(int argc, char** argv) {
  bool timed = true;
  double spread = 0;
  const char* only = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "check")
      timed = false;
    else if (word.starts_with("uneven"))
      spread = word.starts_with("uneven=") ? std::atof(argv[i] + 7) : 0.4;
    else
      only = argv[i];
  }
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting");
  Buffer scratch(kDevice, size_t{1} << 28), workspace(kDevice, StreamedProducts::workspace_bytes()),
      worst(kDevice, 8);
  check(cudaMemset(workspace.data(), 0, workspace.size()), "starting");
  const StreamedProducts products(workspace.data(), {scratch.data(), scratch.size()}, false);
  Context c = {.stream = stream,
               .products = products,
               .spread = spread,
               .apart_us = time_apart(stream, [] {}),
               .worst = reinterpret_cast<double*>(worst.data())};
  for (const Mixture& m : kMixtures) {
    if (only && std::strcmp(only, m.name) != 0) continue;
    std::vector<Named> some = {formats()[1], formats()[2],
                               formats()[0]};  // wint4, int4 g128, wint8
    if (!timed) some.push_back(formats()[8]);  // u4 with zero points of rows
    for (const Named& f : some) {
      const Layer layer(m, f.format, stream);
      for (const int tokens : {8, 32, 64, 128, 256, 512}) measure(c, m, f, layer, tokens, timed);
    }
  }
  std::printf("%d checks, %d failures\n", c.checks, c.failures);
  return c.failures != 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  using namespace skiff::cuda::bench;
  return status_of(run, argc, argv);
}
