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
  int64_t b = 64;
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

CublasLt::CublasLt() { check_lt(cublasLtCreate(&handle_), "starting"); }
CublasLt::~CublasLt() { cublasLtDestroy(handle_); }

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
  if (const auto best = tuned_.find(whole); best != tuned_.end()) {
    if (cublasLtMatmulAlgoCheck(handle_, problem.product, problem.w, problem.x, problem.out,
                                problem.out, &best->second, result) == CUBLAS_STATUS_SUCCESS &&
        result[0].workspaceSize <= kWorkspaceBytes)
      return choice = best->second;
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

void CublasLt::tune(const Tensor& out, const Tensor& x, const Tensor& w, void* workspace,
                    cudaStream_t stream) {
  const Problem problem(out, x, w);
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
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "tuning products");
  check(cudaEventCreate(&end), "tuning products");
  float best = std::numeric_limits<float>::infinity();
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulAlgo_t& algo = results[static_cast<size_t>(i)].algo;
    bool runs = true;
    for (int r = 0; r < kWarmUps && runs; ++r) runs = run(problem, algo, out, x, w, workspace, stream);
    if (!runs) continue;
    check(cudaEventRecord(begin, stream), "tuning products");
    for (int r = 0; r < kRuns; ++r) run(problem, algo, out, x, w, workspace, stream);
    check(cudaEventRecord(end, stream), "tuning products");
    check(cudaEventSynchronize(end), "tuning products");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "tuning products");
    if (ms >= best) continue;
    best = ms;
    tuned_[{bucket(x.rows()), x.cols(), out.cols(), out.dtype}] = algo;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  chosen_.clear();
}

}  // namespace skiff::cuda
