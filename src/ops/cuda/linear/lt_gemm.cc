#include "ops/cuda/linear/lt_gemm.h"

#include <fmt/format.h>

#include <span>

#include "ops/cuda/check.h"
#include "ops/cuda/linear/row_counts.h"

namespace skiff::cuda {
namespace {

cublasLtMatrixLayout_t layout(DType t, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(
      cublasLtMatrixLayoutCreate(&made, t == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF,
                                 static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), stride),
      "describing a matrix");
  return made;
}

}  // namespace

void check_lt(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      fmt::format("cuBLASLt error while {}: {}", doing, cublasLtGetStatusString(status)));
}

LtGemm::LtGemm(cublasLtHandle_t handle, const Tensor& out, const Tensor& x, const Tensor& w)
    : handle_(handle), out_(out), x_(x), w_(w) {
  check_lt(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_lt(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof transposed),
           "describing");
  w_layout_ = layout(w.dtype, x.cols(), out.cols(), x.cols());
  x_layout_ = layout(x.dtype, x.cols(), x.rows(), x.row_stride);
  out_layout_ = layout(out.dtype, out.cols(), x.rows(), out.row_stride);
}

LtGemm::~LtGemm() {
  cublasLtMatrixLayoutDestroy(w_layout_);
  cublasLtMatrixLayoutDestroy(x_layout_);
  cublasLtMatrixLayoutDestroy(out_layout_);
  cublasLtMatmulDescDestroy(product_);
}

std::vector<LtGemm::Proposal> LtGemm::propose(int most) const {
  cublasLtMatmulPreference_t limits = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&limits), "tuning");
  const auto limit = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(limits, what, &value, sizeof value), "tuning");
  };
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  limit(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    limit(operand, kAlignment);
  for (const uint32_t reductions :
       {rows() > kSplitRows ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_MASK,
        CUBLASLT_REDUCTION_SCHEME_MASK}) {
    limit(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, product_, w_layout_, x_layout_, out_layout_,
                                       out_layout_, limits, most, results.data(), &found);
    if (status == CUBLAS_STATUS_SUCCESS && found > 0) break;
    found = 0;
  }
  cublasLtMatmulPreferenceDestroy(limits);
  std::vector<Proposal> proposals;
  for (const cublasLtMatmulHeuristicResult_t& r :
       std::span(results).first(static_cast<size_t>(found)))
    proposals.push_back({r.algo, r.wavesCount});
  return proposals;
}

bool LtGemm::works(const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, product_, w_layout_, x_layout_, out_layout_, out_layout_,
                                 &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kWorkspaceBytes;
}

bool LtGemm::run(const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                 cudaStream_t stream) const {
  const float one = 1, zero = 0;
  return cublasLtMatmul(handle_, product_, &one, w_.data, w_layout_, x_.data, x_layout_, &zero,
                        out_.data, out_layout_, out_.data, out_layout_, &algorithm, workspace,
                        kWorkspaceBytes, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace skiff::cuda
