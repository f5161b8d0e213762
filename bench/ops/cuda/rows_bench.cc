// bench/ops/cuda/rows_bench.cc -- how long a dense product takes for each number of rows, beside
// the best of the algorithms that cuBLASLt proposes for exactly that number.
//
// bench_rows [PREFIX OF A SHAPE'S NAME]
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ops/cuda/check.h"
#include "ops/cuda/linear/dense.h"
#include "rows_device.h"

namespace skiff::cuda::bench {
namespace {

constexpr size_t kWeightBytes = size_t{4} << 30;
constexpr double kReadLimit = 4.5e12, kBf16Limit = 790e12;
constexpr int64_t kMostRows = 8192;
constexpr int kProposals = 16;
constexpr int kFewRowsCalls = 40, kCalls = 24;  // calls of tune(), as for the layers of a model
constexpr float kClose = 1.08f;  // proposals that much slower than the best are timed only once

struct Shape {
  const char* name;
  int64_t out, in;
  DType out_type = DType::kBF16;
  int64_t most = kMostRows;
};
constexpr Shape kShapes[] = {
    {"Llama-8B qkv", 6144, 4096},
    {"Llama-8B o", 4096, 4096},
    {"Llama-8B gate_up", 28672, 4096},
    {"Llama-8B down", 4096, 14336},
    {"Llama-8B head", 128256, 4096, DType::kF32, 256},
    {"Qwen-7B qkv", 4608, 3584, DType::kF32},
    {"Qwen-7B o", 3584, 3584},
    {"Qwen-7B gate_up", 37888, 3584},
    {"Qwen-7B down", 3584, 18944},
    {"ERNIE qkv", 3584, 2560},
    {"ERNIE o", 2560, 2560},
    {"ERNIE gate_up", 24576, 2560},
    {"ERNIE down", 2560, 12288},
    {"Llama-1B qkv", 3072, 2048},
    {"Llama-1B o", 2048, 2048},
    {"Llama-1B gate_up", 16384, 2048},
    {"Llama-1B down", 2048, 8192},
    {"Qwen-0.5B qkv", 1152, 896, DType::kF32},
    {"Qwen-0.5B gate_up", 9728, 896},
    {"Qwen-0.5B down", 896, 4864},
};

std::vector<int64_t> row_counts(int64_t most) {
  std::vector<int64_t> counts;
  for (int64_t r = 8; r <= 128; r += 8) counts.push_back(r);
  for (int64_t r = 160; r <= 2304; r += 32) counts.push_back(r);
  for (int64_t r = 1032; r <= 1160; r += 8) counts.push_back(r);
  for (int64_t r : {2560, 3072, 3584, 4096, 5120, 6144, 8192}) counts.push_back(r);
  std::ranges::sort(counts);
  counts.erase(std::ranges::unique(counts).begin(), counts.end());
  std::erase_if(counts, [&](int64_t r) { return r > most; });
  return counts;
}

class Bench {
 public:
  Bench(cudaStream_t stream, DenseProducts& dense, char* weights)
      : stream_(stream), dense_(dense), weights_(weights) {
    check(cudaEventCreate(&begin_), "starting");
    check(cudaEventCreate(&end_), "starting");
    check(cudaMalloc(&workspace_, LtGemm::kWorkspaceBytes), "allocating");
    check_lt(cublasLtCreate(&handle_), "starting");
  }
  int failures = 0;

  void shape(const Shape& s) {
    const Tensor x = random_rows(s.most, s.in), out = outputs(s.out_type, s.most, s.out);
    fmt::print("{} {}x{}: tuned in {:.3f} s\n  rows      us  proposed  TFLOP/s  of the limit\n",
               s.name, s.out, s.in, tune(s, out, x));
    for (const int64_t rows : row_counts(s.most))
      count(s, out.row_range(0, rows), x.row_range(0, rows));
    std::fflush(stdout);
    cudaFree(x.data), cudaFree(out.data);
  }

 private:
  // Weights take turns, so that they come from memory.
  Linear matrix(const Shape& s) {
    const size_t size = static_cast<size_t>(s.out * s.in) * 2;
    const size_t copies = std::min(kWeightBytes / size, (size_t{400} << 20) / size + 1);
    return {.weight = {.data = weights_ + turn_++ % copies * size,
                       .dim = {s.out, s.in, 1, 1},
                       .row_stride = s.in,
                       .dtype = DType::kBF16}};
  }
  double tune(const Shape& s, const Tensor& out, const Tensor& x) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t rows = 8; rows <= s.most; rows += rows < 64 ? 8 : rows) {
      for (int i = 0; i < (rows <= 256 ? kFewRowsCalls : kCalls); ++i)
        dense_.tune(out.row_range(0, rows), x.row_range(0, rows), matrix(s), stream_);
      check(cudaStreamSynchronize(stream_), "tuning");
      dense_.settle();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double mean_us(int runs, const std::function<void()>& f) {
    spin(15000 + 9000 * runs, stream_);
    check(cudaEventRecord(begin_, stream_), "timing");
    for (int i = 0; i < runs; ++i) f();
    check(cudaEventRecord(end_, stream_), "timing");
    check(cudaEventSynchronize(end_), "timing");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "timing");
    return 1e3 * ms / runs;
  }

  double best_proposal(const Shape& s, const Tensor& out, const Tensor& x) {
    struct Trial {
      cublasLtMatmulAlgo_t algorithm;
      double us;
    };
    const auto run = [&](const Trial& t) {
      LtGemm(handle_, out, x, matrix(s).weight).run(t.algorithm, workspace_, stream_);
    };
    std::vector<Trial> trials;
    double best = 1e9;
    for (const auto& p : LtGemm(handle_, out, x, matrix(s).weight).propose(kProposals)) {
      Trial& t = trials.emplace_back(Trial{p.algorithm, 0});
      run(t);
      best = std::min(best, t.us = mean_us(2, [&] { run(t); }));
    }
    for (int pass = 0; pass < 3; ++pass)
      for (const Trial& t : trials)
        if (t.us < kClose * best) best = std::min(best, mean_us(3, [&] { run(t); }));
    return best;
  }

  void count(const Shape& s, const Tensor& out, const Tensor& x) {
    const Linear w = matrix(s);
    dense_.product(out, x, w, stream_);
    check(cudaStreamSynchronize(stream_), "a product");
    const double error = worst_error(out, x, w);
    if (!(error <= 1)) ++failures;
    double us = 1e9;
    for (int pass = 0; pass < 4; ++pass)
      us = std::min(us, mean_us(3, [&] { dense_.product(out, x, matrix(s), stream_); }));
    const auto rows = static_cast<double>(out.rows()), features = static_cast<double>(s.out),
               in = static_cast<double>(s.in);
    const double work = 2 * rows * features * in,
                 moved = 2 * (features * in + rows * (features + in));
    fmt::print("  {:4} {:7.1f} {:9.1f} {:8.1f} {:11.0f} %{}\n", out.rows(), us,
               best_proposal(s, out, x), work / us / 1e6,
               1e8 * std::max(work / kBf16Limit, moved / kReadLimit) / us,
               error <= 1 ? "" : "  WRONG");
  }

  cudaStream_t stream_;
  DenseProducts& dense_;
  char* weights_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  size_t turn_ = 0;
};

int run(const std::string& prefix) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting");
  const size_t bytes = DenseProducts::scratch_bytes(1024, 8192);
  void *scratch, *weights;
  check(cudaMalloc(&scratch, bytes), "allocating");
  check(cudaMalloc(&weights, kWeightBytes), "allocating");
  fill_weights(weights, kWeightBytes);
  DenseProducts dense(scratch, bytes);
  Bench bench(stream, dense, static_cast<char*>(weights));
  for (const Shape& s : kShapes)
    if (std::string(s.name).starts_with(prefix)) bench.shape(s);
  fmt::print("{} failures\n", bench.failures);
  return bench.failures != 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  try {
    return skiff::cuda::bench::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
