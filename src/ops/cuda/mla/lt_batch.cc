#include "ops/cuda/mla/lt_batch.h"

#include "ops/cuda/linear/lt_gemm.h"

namespace skiff::cuda {
namespace {

cublasLtMatrixLayout_t layout_of(const LtMatrix& m, int64_t heads) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, static_cast<uint64_t>(m.rows),
                                      static_cast<uint64_t>(m.cols), m.stride),
           "describing a matrix");
  const auto count = static_cast<int32_t>(heads);
  check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count),
           "describing a batch");
  check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &m.head_stride, sizeof m.head_stride),
           "describing a batch");
  return made;
}

}  // namespace

LtBatch::LtBatch(const LtMatrix& d, const LtMatrix& a, bool transposed, const LtMatrix& b,
                 int64_t heads)
    : d_(d), a_(a), b_(b) {
  check_lt(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
  const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  check_lt(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &operation,
                                          sizeof operation),
           "describing");
  d_layout_ = layout_of(d, heads);
  a_layout_ = layout_of(a, heads);
  b_layout_ = layout_of(b, heads);
}

LtBatch::~LtBatch() {
  for (cublasLtMatrixLayout_t layout : {d_layout_, a_layout_, b_layout_})
    cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(product_);
}

std::optional<cublasLtMatmulAlgo_t> LtBatch::propose(cublasLtHandle_t handle,
                                                     size_t scratch_bytes) const {
  cublasLtMatmulPreference_t limits = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&limits), "choosing");
  const auto limit = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(limits, what, &value, sizeof value), "choosing");
  };
  limit(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, scratch_bytes);
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    limit(operand, LtGemm::kAlignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, product_, a_layout_, b_layout_, d_layout_, d_layout_, limits, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(limits);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) return {};
  return result.algo;
}

bool LtBatch::run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, void* scratch,
                  size_t scratch_bytes, cudaStream_t stream) const {
  const float one = 1, zero = 0;
  return cublasLtMatmul(handle, product_, &one, a_.data, a_layout_, b_.data, b_layout_, &zero,
                        d_.data, d_layout_, d_.data, d_layout_, &algorithm, scratch, scratch_bytes,
                        stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace skiff::cuda
