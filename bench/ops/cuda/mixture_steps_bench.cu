// bench/ops/cuda/mixture_steps_bench.cu -- the steps of a mixture's layer around its two grouped
// GEMMs, for as many rows as decode together: checked first, then timed. The router's product, the
// choice of experts, the sort and gather of copies, and the sum of what experts gave.
// Arguments: the numbers of rows.
#include <cstring>
#include <stdexcept>

#include "harness.cuh"
#include "ops/cuda/linear/dense.h"
#include "ops/cuda/moe/combination.h"
#include "ops/cuda/moe/permute.h"
#include "ops/cuda/moe/route.h"

namespace skiff::cuda::bench {
namespace {

constexpr int kLayers = 16;  // their routers' weights do not fit the second-level cache together

struct Mixture {
  const char* name;
  Router router;
  int hidden;
};

// The largest error of a product, in units of what f32 sums of its terms may have.
double product_error(const Tensor& out, const Tensor& x, const Tensor& w) {
  const auto got = host<float>(out.data, out.elements()), by = host<float>(w.data, w.elements());
  const auto rows = host<__nv_bfloat16>(x.data, x.elements());
  double worst = 0;
  for (int64_t r = 0; r < out.rows(); r += 7)
    for (int64_t o = 0; o < out.cols(); ++o) {
      double want = 0, size = 0;
      for (int64_t k = 0; k < x.cols(); ++k) {
        const double term =
            static_cast<double>(__bfloat162float(rows[r * x.cols() + k])) * by[o * x.cols() + k];
        want += term, size += std::abs(term);
      }
      const double error = std::abs(got[r * out.cols() + o] - want);
      worst = error <= 0 || error > 0 ? std::max(worst, error / size * 0x1p24) : 1e30;
    }
  return worst;
}

std::vector<Tensor> outers(int64_t elements) {
  constexpr int64_t kElements = 64 << 20;
  std::vector<Tensor> all;
  for (int64_t n = 0; n < kElements || all.size() < 2; n += elements)
    all.push_back(random(DType::kBF16, {1, elements}, 9 + all.size()));
  return all;
}

struct World {
  Mixture m;
  int rows;
  cudaStream_t stream;
  DenseProducts& dense;
  std::vector<Tensor>& weights;
  Tensor x = random(DType::kBF16, {rows, m.hidden}, 1);
  Tensor logits = make(DType::kF32, {rows, m.router.experts});
  Tensor bias = random(DType::kF32, {m.router.experts}, 5, 0.05f);
  Routing routing = {.expert = make(DType::kI32, {rows, m.router.per_token()}),
                     .weight = make(DType::kF32, {rows, m.router.per_token()}),
                     .order = make(DType::kI32, {int64_t{rows} * m.router.per_token()}),
                     .expert_start = make(DType::kI32, {m.router.total() + 1}),
                     .always = m.router.always,
                     .experts = m.router.experts};
  int64_t copies = routing.expert.elements();
  Permutation to = {.gathered = make(DType::kBF16, {copies, m.hidden}),
                    .position = make(DType::kI32, {copies}).as<int32_t>(),
                    .jobs = static_cast<Job*>(make(DType::kI32, {2 * copies, 4}).data),
                    .job_count = make(DType::kI32, {1}).as<int32_t>(),
                    .rows_per_job = 8};
  // What experts gave: more of it than fits the second-level cache, through which the experts'
  // weights have passed since.
  std::vector<Tensor> outer = outers(copies * m.hidden);
  Tensor out = make(DType::kBF16, {rows, m.hidden});

  void product(int layer) {
    dense.product(logits, x, {.weight = weights[layer], .bias = {}}, stream);
  }
  void choose() { cuda::choose(routing, logits, bias, m.router, nullptr, stream); }
  void gather() { permute(to, x, routing, stream, false); }
  void sum(int layer) {
    Tensor gave = outer[static_cast<size_t>(layer) % outer.size()];
    gave.dim[0] = copies;
    gave.dim[1] = gave.row_stride = m.hidden;
    combine({.out = out,
             .outer = gave,
             .position = to.position,
             .expert = routing.expert,
             .weight = routing.weight},
            stream);
  }
  template <class F>
  double us(F f) {
    return graph_us(
               [&] {
                 for (int l = 0; l < kLayers; ++l) f(l);
               },
               stream, 21) /
           kLayers;
  }
  ~World() {
    for (void* p : {x.data, logits.data, bias.data, routing.expert.data, routing.weight.data,
                    routing.order.data, routing.expert_start.data, to.gathered.data,
                    static_cast<void*>(to.position), static_cast<void*>(to.jobs),
                    static_cast<void*>(to.job_count), out.data})
      cudaFree(p);
    for (const Tensor& t : outer) cudaFree(t.data);
  }
};

// Returns how many copies lie elsewhere, or hold another row, than the choice says.
int64_t misplaced(const World& w) {
  const auto expert = host<int32_t>(w.routing.expert.data, w.copies);
  const auto position = host<int32_t>(w.to.position, w.copies);
  const auto gathered = host<uint16_t>(w.to.gathered.data, w.copies * w.m.hidden);
  const auto x = host<uint16_t>(w.x.data, w.x.elements());
  std::vector<int64_t> order(static_cast<size_t>(w.copies));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return expert[a] < expert[b]; });
  int64_t wrong = 0;
  for (int64_t i = 0; i < w.copies; ++i) {
    const int64_t token = order[i] / w.m.router.per_token();
    wrong += position[order[i]] != i ||
             std::memcmp(&gathered[i * w.m.hidden], &x[token * w.m.hidden], 2 * w.m.hidden) != 0;
  }
  return wrong;
}

// What an expert is chosen by.
std::vector<double> scores(const World& w, const float* logits, const std::vector<float>& bias) {
  const Router& r = w.m.router;
  std::vector<double> score(logits, logits + r.experts);
  double sum = 0;
  for (double& s : score)
    sum += s = r.score == Router::kSigmoid ? 1 / (1 + std::exp(-s)) : std::exp(s);
  for (int e = 0; e < r.experts; ++e)
    score[e] = score[e] / (r.score == Router::kSigmoid ? 1 : sum) + bias[e];
  const int size = r.experts / r.groups.count;
  std::vector<std::pair<double, int>> worth;
  for (int g = 0; g < r.groups.count && r.groups.keep < r.groups.count; ++g) {
    std::vector<double> of(&score[g * size], &score[g * size] + size);
    std::sort(of.rbegin(), of.rend());
    worth.push_back({-of[0] - of[1], g});
  }
  std::sort(worth.begin(), worth.end());
  for (size_t i = r.groups.keep; i < worth.size(); ++i)
    std::fill_n(&score[worth[i].second * size], size, -INFINITY);
  return score;
}

// Returns how many choices are not the formula's, ties of f32 apart.
int64_t wrong_choices(const World& w) {
  const int k = w.m.router.top_k;
  const auto expert = host<int32_t>(w.routing.expert.data, w.copies);
  const auto logits = host<float>(w.logits.data, w.logits.elements());
  const auto bias = host<float>(w.bias.data, w.bias.elements());
  int64_t wrong = 0;
  for (int t = 0; t < w.rows; ++t) {
    const std::vector<double> score = scores(w, &logits[t * w.m.router.experts], bias);
    std::vector<double> best = score;
    std::sort(best.rbegin(), best.rend());
    for (int i = 0; i < k; ++i) wrong += !(std::abs(score[expert[t * k + i]] - best[i]) < 1e-6);
  }
  return wrong;
}

// Returns how many jobs are missing, or not those of the choice.
int64_t wrong_jobs(const World& w) {
  const auto expert = host<int32_t>(w.routing.expert.data, w.copies);
  const auto jobs = host<Job>(w.to.jobs, host<int32_t>(w.to.job_count, 1)[0]);
  std::vector<Job> want;
  int first = 0;
  for (int e = 0; e < w.m.router.total(); ++e) {
    const int end = first + static_cast<int>(std::count(expert.begin(), expert.end(), e));
    for (; first < end; first += want.back().rows)
      want.push_back({e, first, std::min(w.to.rows_per_job, end - first), 0});
  }
  if (want.size() != jobs.size()) return 1;
  int64_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i)
    wrong += std::memcmp(&want[i], &jobs[i], sizeof(Job)) != 0;
  return wrong;
}

// Returns how many of some sums are further from the formula than by a rounding to bf16.
int64_t wrong_sums(const World& w) {
  const int k = w.m.router.top_k, hidden = w.m.hidden;
  const auto position = host<int32_t>(w.to.position, w.copies);
  const auto weight = host<float>(w.routing.weight.data, w.copies);
  const auto gave = host<__nv_bfloat16>(w.outer[0].data, w.copies * hidden);
  const auto out = host<__nv_bfloat16>(w.out.data, w.out.elements());
  int64_t wrong = 0;
  for (int t = 0; t < w.rows; t += 5)
    for (int c = 0; c < hidden; c += 37) {
      double sum = 0, size = 0;
      for (int i = 0; i < k; ++i) {
        const double term = static_cast<double>(weight[t * k + i]) *
                            __bfloat162float(gave[int64_t{position[t * k + i]} * hidden + c]);
        sum += term, size += std::abs(term);
      }
      const double got = __bfloat162float(out[int64_t{t} * hidden + c]);
      wrong += !(std::abs(got - sum) <= 0x1p-8 * std::abs(sum) + 0x1p-20 * size);
    }
  return wrong;
}

bool run_case(World& w) {
  w.product(0), w.choose(), w.gather(), w.sum(0);
  check(cudaStreamSynchronize(w.stream), "the steps");
  const double error = product_error(w.logits, w.x, w.weights[0]);
  const int64_t choices = wrong_choices(w), sums = wrong_sums(w);
  const int64_t places = misplaced(w) + wrong_jobs(w);
  // Sums of f32 in chains of tens of terms round a few dozen times.
  const bool right = error < 64 && choices + places + sums == 0;
  std::printf(
      "%-6s %4d rows: product off by %.2f roundings of its terms' sum; wrong: %lld choices, "
      "%lld copies and jobs, %lld sums%s\n",
      w.m.name, w.rows, error, static_cast<long long>(choices), static_cast<long long>(places),
      static_cast<long long>(sums), right ? "" : " WRONG");
  return right;
}

void time_case(World& w) {
  const double product = w.us([&](int l) { w.product(l); });
  w.product(0);
  const double choice = w.us([&](int) { w.choose(); }), gather = w.us([&](int) { w.gather(); }),
               sum = w.us([&](int l) { w.sum(l); });
  const double all = w.us([&](int l) { w.product(l), w.choose(), w.gather(), w.sum(l); });
  std::printf(
      "%-6s %4d rows, us: product %5.1f  choice %5.1f  sort and gather %5.1f  sum %5.1f  "
      "all, one after the other %5.1f\n",
      w.m.name, w.rows, product, choice, gather, sum, all);
}

int run(int argc, char** argv) {
  std::vector<int> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoi(argv[i]));
  if (rows.empty()) rows = {1, 16, 32, 64, 128, 256};
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting");
  const size_t bytes = DenseProducts::scratch_bytes(0, 0);
  void* scratch;
  check(cudaMalloc(&scratch, bytes), "allocating");
  DenseProducts dense(scratch, bytes);
  Router grouped = {.experts = 256,
                    .top_k = 8,
                    .score = Router::kSigmoid,
                    .groups = {8, 4, ExpertGroups::kTwoBest},
                    .factor = 2.5f,
                    .bias = true};
  Router plain = {.experts = 64, .top_k = 8, .bias = true};
  int checks = 0, failures = 0;
  for (const Mixture& m : {Mixture{"R1", grouped, 7168}, Mixture{"ERNIE", plain, 8192}}) {
    std::vector<Tensor> weights;
    for (int l = 0; l < kLayers; ++l)
      weights.push_back(random(DType::kF32, {m.router.experts, m.hidden}, 60 + l, 0.03f));
    for (const int n : rows) {
      World w{m, n, stream, dense, weights};
      const bool good = run_case(w);
      ++checks, failures += !good;
      if (good) time_case(w);
    }
    for (const Tensor& t : weights) cudaFree(t.data);
  }
  std::printf("%d mixtures checked, %d failures\n", checks, failures);
  return failures != 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  using namespace skiff::cuda::bench;
  return status_of(run, argc, argv);
}
