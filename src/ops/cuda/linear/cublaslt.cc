#include "ops/cuda/linear/cublaslt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "ops/cuda/check.h"

namespace skiff::cuda {
namespace {

constexpr int kCandidates = 8, kWarmUps = 2, kRuns = 5;

void check_lt(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      fmt::format("cuBLASLt error while {}: {}", doing, cublasLtGetStatusString(status)));
}

int64_t bucket(int64_t rows) {
  int64_t b = 8;
  while (b < rows) b *= 2;
  return b;
}

bool on_16_bytes(const Tensor& t) {
  const auto element = static_cast<int64_t>(bytes(t.dtype));
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.row_stride * element % 16 == 0;
}

cudaDataType_t cuda_type(DType t) { return t == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

}  // namespace

// The library thinks in columns: its A is w, its B is x, both stored with `in` running fastest.
struct CublasLt::Problem {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;

  Problem(const Tensor& o, const Tensor& xs, const Tensor& ws) {
    check_lt(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_lt(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed),
             "describing");
    const auto rows = static_cast<uint64_t>(xs.rows()), in = static_cast<uint64_t>(xs.cols()),
               features = static_cast<uint64_t>(o.cols());
    layout(&w, ws.dtype, in, features, static_cast<int64_t>(in));
    layout(&x, xs.dtype, in, rows, xs.row_stride);
    layout(&out, o.dtype, features, rows, o.row_stride);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
  ~Problem() {
    cublasLtMatrixLayoutDestroy(w);
    cublasLtMatrixLayoutDestroy(x);
    cublasLtMatrixLayoutDestroy(out);
    cublasLtMatmulDescDestroy(product);
  }

  static void layout(cublasLtMatrixLayout_t* l, DType t, uint64_t rows, uint64_t cols, int64_t ld) {
    check_lt(cublasLtMatrixLayoutCreate(l, cuda_type(t), rows, cols, ld), "describing a matrix");
  }
};

CublasLt::CublasLt() {
  check_lt(cublasLtCreate(&handle_), "starting");
  check(cudaEventCreate(&begin_), "making an event");
  check(cudaEventCreate(&end_), "making an event");
}

CublasLt::~CublasLt() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
  cublasLtDestroy(handle_);
}

// Of those that have been measured.
const CublasLt::Trial& CublasLt::fastest(const std::vector<Trial>& trials) {
  return *std::ranges::min_element(trials, {}, [](const Trial& t) {
    return t.runs > 1 ? t.best : std::numeric_limits<float>::infinity();
  });
}

bool CublasLt::takes(const Tensor& out, const Tensor& x, const Tensor& w) {
  return x.dtype == DType::kBF16 && w.dtype == DType::kBF16 && on_16_bytes(out) && on_16_bytes(x) &&
         on_16_bytes(w);
}

std::optional<cublasLtMatmulAlgo_t> CublasLt::choose(const Key& key, const Problem& problem) {
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  std::optional<cublasLtMatmulAlgo_t>& choice = chosen_[key];
  Key whole = key;
  std::get<0>(whole) = bucket(std::get<0>(key));
  cublasLtMatmulHeuristicResult_t result[1] = {};
  if (const auto tried = trials_.find(whole); tried != trials_.end()) {
    const Trial& best = fastest(tried->second);
    if (best.runs > 1 &&
        cublasLtMatmulAlgoCheck(handle_, problem.product, problem.w, problem.x, problem.out,
                                problem.out, &best.algo, result) == CUBLAS_STATUS_SUCCESS &&
        result[0].workspaceSize <= kWorkspaceBytes)
      return choice = best.algo;
  }
  cublasLtMatmulPreference_t limits = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&limits), "choosing");
  const size_t room = kWorkspaceBytes;
  check_lt(cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &room, sizeof room),
           "choosing");
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, problem.product, problem.w, problem.x, problem.out,
                                     problem.out, limits, 1, result, &found);
  cublasLtMatmulPreferenceDestroy(limits);
  if (status == CUBLAS_STATUS_SUCCESS && found > 0) choice = result[0].algo;
  return choice;
}

bool CublasLt::run(const Problem& problem, const cublasLtMatmulAlgo_t& algo, const Tensor& out,
                   const Tensor& x, const Tensor& w, void* workspace, cudaStream_t stream) {
  const float one = 1, zero = 0;
  return cublasLtMatmul(handle_, problem.product, &one, w.data, problem.w, x.data, problem.x, &zero,
                        out.data, problem.out, out.data, problem.out, &algo, workspace,
                        kWorkspaceBytes, stream) == CUBLAS_STATUS_SUCCESS;
}

bool CublasLt::product(const Tensor& out, const Tensor& x, const Tensor& w, void* workspace,
                       cudaStream_t stream) {
  if (out.rows() == 0) return true;
  const Problem problem(out, x, w);
  const auto algo = choose({x.rows(), x.cols(), out.cols(), out.dtype}, problem);
  return algo && run(problem, *algo, out, x, w, workspace, stream);
}

std::vector<CublasLt::Trial> CublasLt::propose(const Problem& problem) {
  cublasLtMatmulPreference_t limits = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&limits), "tuning");
  const size_t room = kWorkspaceBytes;
  check_lt(cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &room, sizeof room),
           "tuning");
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(handle_, problem.product, problem.w, problem.x, problem.out,
                                 problem.out, limits, kCandidates, results.data(), &found);
  cublasLtMatmulPreferenceDestroy(limits);
  std::vector<Trial> trials;
  for (int i = 0; i < found; ++i) trials.push_back({.algo = results[static_cast<size_t>(i)].algo});
  return trials;
}

void CublasLt::tune(const Tensor& out, const Tensor& x, const Tensor& w, void* workspace,
                    cudaStream_t stream) {
  const Problem problem(out, x, w);
  const Key key{bucket(x.rows()), x.cols(), out.cols(), out.dtype};
  std::vector<Trial>& trials = trials_[key];
  if (trials.empty()) trials = propose(problem);
  if (trials.empty()) return;
  Trial& trial = *std::ranges::min_element(trials, {}, &Trial::runs);
  check(cudaEventRecord(begin_, stream), "tuning products");
  const bool ran = run(problem, trial.algo, out, x, w, workspace, stream);
  check(cudaEventRecord(end_, stream), "tuning products");
  check(cudaEventSynchronize(end_), "tuning products");
  float ms = std::numeric_limits<float>::infinity();
  if (ran) check(cudaEventElapsedTime(&ms, begin_, end_), "tuning products");
  trial.best = trial.runs++ <= 1 ? ms : std::min(trial.best, ms);
  chosen_.clear();
}

}  // namespace skiff::cuda
