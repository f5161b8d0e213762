#include "ops/cuda/linear/lt_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "ops/cuda/check.h"
#include "ops/cuda/linear/row_counts.h"

namespace skiff::cuda {
namespace {

// The family of kernels (CUBLASLT_ALGO_CONFIG_ID) that add in one order where they do not split the
// inner dimension: on an H200, 223 of 223 algorithms of all tiles, for 1 to 8192 rows
// (docs/performance.md).
constexpr int kOneOrderFamily = 66;
// cuBLASLt proposes algorithms of any kind; among more of them, more add in one order.
constexpr int kProposedForOneOrder = 32;

template <class T>
T config_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t what) {
  T value{};
  size_t written = 0;
  check_lt(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, what, &value, sizeof value, &written),
           "asking what an algorithm is");
  return value;
}

cublasLtMatrixLayout_t layout(DType t, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  const cudaDataType_t type = t == DType::kF32      ? CUDA_R_32F
                              : t == DType::kF8E4M3 ? CUDA_R_8F_E4M3
                                                    : CUDA_R_16BF;
  check_lt(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows),
                                      static_cast<uint64_t>(cols), stride),
           "describing a matrix");
  return made;
}

}  // namespace

ProductKey key_of(const Tensor& out, const Tensor& x) {
  return {.rows = out.rows(),
          .in = x.cols(),
          .features = out.cols(),
          .x_stride = x.row_stride,
          .out_stride = out.row_stride,
          .out_type = static_cast<int32_t>(out.dtype)};
}

void check_lt(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      fmt::format("cuBLASLt error while {}: {}", doing, cublasLtGetStatusString(status)));
}

bool adds_in_one_order(const cublasLtMatmulAlgo_t& algorithm) {
  return config_of<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID) == kOneOrderFamily &&
         config_of<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 &&
         config_of<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) ==
             CUBLASLT_REDUCTION_SCHEME_NONE;
}

LtGemm::LtGemm(cublasLtHandle_t handle, const Tensor& out, const Tensor& x, const Tensor& w,
               bool one_order)
    : handle_(handle), out_(out), x_(x), w_(w), one_order_(one_order) {
  check_lt(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_lt(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof transposed),
           "describing");
  w_layout_ = layout(w.dtype, x.cols(), out.cols(), x.cols());
  x_layout_ = layout(x.dtype, x.cols(), x.rows(), x.row_stride);
  out_layout_ = layout(out.dtype, out.cols(), x.rows(), out.row_stride);
}

template <class T>
void LtGemm::describe(cublasLtMatmulDescAttributes_t what, const T& value) {
  check_lt(cublasLtMatmulDescSetAttribute(product_, what, reinterpret_cast<const void*>(&value),
                                          sizeof value),
           "describing");
}

LtGemm::LtGemm(cublasLtHandle_t handle, const Tensor& out, const Tensor& x, const Tensor& w,
               const BlockScales& scales)
    : LtGemm(handle, out, x, w) {
  workspace_bytes_ = kScaledWorkspaceBytes;
  describe(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F});
  describe(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F});
  describe(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.w);
  describe(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.x);
}

LtGemm::LtGemm(cublasLtHandle_t handle, const Tensor& out, const Tensor& x, const Tensor& w,
               const ChannelScales& scales)
    : LtGemm(handle, out, x, w) {
  workspace_bytes_ = kScaledWorkspaceBytes;
  constexpr int32_t kRows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  describe(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kRows);
  describe(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kRows);
  describe(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.w);
  describe(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.x);
  describe(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
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
  const int asked = one_order_ ? std::max(most, kProposedForOneOrder) : most;
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(asked));
  int found = 0;
  limit(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes_);
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    limit(operand, kAlignment);
  for (const uint32_t reductions :
       {rows() > kSplitRows || one_order_ ? CUBLASLT_REDUCTION_SCHEME_NONE
                                          : CUBLASLT_REDUCTION_SCHEME_MASK,
        CUBLASLT_REDUCTION_SCHEME_MASK}) {
    limit(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, product_, w_layout_, x_layout_, out_layout_,
                                       out_layout_, limits, asked, results.data(), &found);
    if (status == CUBLAS_STATUS_SUCCESS && found > 0) break;
    found = 0;
  }
  cublasLtMatmulPreferenceDestroy(limits);
  std::vector<Proposal> proposals;
  for (const cublasLtMatmulHeuristicResult_t& r :
       std::span(results).first(static_cast<size_t>(found))) {
    if (std::ssize(proposals) == most) break;
    if (!one_order_ || adds_in_one_order(r.algo)) proposals.push_back({r.algo, r.wavesCount});
  }
  return proposals;
}

bool LtGemm::works(const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, product_, w_layout_, x_layout_, out_layout_, out_layout_,
                                 &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes_;
}

bool LtGemm::run(const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                 cudaStream_t stream) const {
  const float one = 1, zero = 0;
  return cublasLtMatmul(handle_, product_, &one, w_.data, w_layout_, x_.data, x_layout_, &zero,
                        out_.data, out_layout_, out_.data, out_layout_, &algorithm, workspace,
                        workspace_bytes_, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace skiff::cuda
