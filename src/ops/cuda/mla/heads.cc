#include "ops/cuda/mla/heads.h"

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/linear/lt_gemm.h"
#include "ops/cuda/linear/shape.h"

namespace skiff::cuda {
namespace {

// The operands as cuBLASLt sees them, column-major: its A is w and its B is x, both stored with
// `in` running fastest, a batch of `heads` matrices.
class HeadGemm {
 public:
  HeadGemm(const Tensor& out, const Tensor& x, const Linear& w) : out_(out), x_(x), w_(w) {
    const int64_t heads = w.experts, rows = x.rows() / heads, in = x.cols();
    check_lt(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_lt(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed),
             "describing");
    w_layout_ = layout(in, out.cols(), in, heads, in * out.cols());
    x_layout_ = layout(in, rows, heads * x.row_stride, heads, x.row_stride);
    out_layout_ = layout(out.cols(), rows, heads * out.row_stride, heads, out.row_stride);
  }
  ~HeadGemm() {
    for (cublasLtMatrixLayout_t l : {w_layout_, x_layout_, out_layout_})
      cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(product_);
  }
  HeadGemm(const HeadGemm&) = delete;
  HeadGemm& operator=(const HeadGemm&) = delete;

  std::optional<cublasLtMatmulAlgo_t> propose(cublasLtHandle_t handle) const {
    cublasLtMatmulPreference_t limits = nullptr;
    check_lt(cublasLtMatmulPreferenceCreate(&limits), "choosing");
    const auto limit = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      check_lt(cublasLtMatmulPreferenceSetAttribute(limits, what, &value, sizeof value),
               "choosing");
    };
    limit(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, HeadProducts::kScratchBytes);
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      limit(operand, LtGemm::kAlignment);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, product_, w_layout_, x_layout_, out_layout_,
                                       out_layout_, limits, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(limits);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) return {};
    return result.algo;
  }

  bool run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, void* scratch,
           cudaStream_t stream) const {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, product_, &one, w_.weight.data, w_layout_, x_.data, x_layout_,
                          &zero, out_.data, out_layout_, out_.data, out_layout_, &algorithm,
                          scratch, HeadProducts::kScratchBytes, stream) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  static cublasLtMatrixLayout_t layout(int64_t rows, int64_t cols, int64_t stride, int64_t heads,
                                       int64_t head_stride) {
    cublasLtMatrixLayout_t made = nullptr;
    check_lt(cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(cols), stride),
             "describing a matrix");
    const auto count = static_cast<int32_t>(heads);
    check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count),
             "describing a batch");
    check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &head_stride, sizeof head_stride),
             "describing a batch");
    return made;
  }

  Tensor out_, x_;
  const Linear& w_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t w_layout_ = nullptr, x_layout_ = nullptr, out_layout_ = nullptr;
};

}  // namespace

HeadProducts::HeadProducts(std::byte* scratch, bool one_order)
    : scratch_(scratch), one_order_(one_order) {}

HeadProducts::~HeadProducts() {
  if (handle_) cublasLtDestroy(handle_);
}

bool HeadProducts::by_library(const Tensor& out, const Tensor& x, const Linear& w,
                              cudaStream_t stream) {
  if (!handle_) check_lt(cublasLtCreate(&handle_), "starting");
  const HeadGemm gemm(out, x, w);
  const Key key = {x.rows(), w.experts, x.cols(), out.cols(), x.row_stride, out.row_stride};
  auto known = algorithms_.find(key);
  if (known == algorithms_.end()) known = algorithms_.emplace(key, gemm.propose(handle_)).first;
  return known->second && gemm.run(handle_, *known->second, scratch_, stream);
}

void HeadProducts::product(const Tensor& out, const Tensor& x, const Linear& w,
                           cudaStream_t stream) {
  SKIFF_CHECK(w.experts > 0 && !w.format.quantized(), "heads_linear takes a stack of plain values");
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(x.rows() % w.experts, 0);
  SKIFF_CHECK_EQ(out.cols(), features(w));
  SKIFF_CHECK_EQ(x.cols(), inputs(w));
  SKIFF_CHECK(out.dtype == x.dtype && w.weight.dtype == x.dtype);
  if (x.rows() == 0) return;
  if (!one_order_ && heads_by_rows_takes(out, x, w)) return heads_by_rows(out, x, w, stream);
  if (!heads_by_tiles_takes(out, x, w)) return heads_by_elements(out, x, w, stream);
  const bool library = !one_order_ && !is_tiles(w) && is_aligned(out) && out.cols() % 8 == 0;
  if (library && by_library(out, x, w, stream)) return;
  heads_by_tiles(out, x, w, stream);
}

}  // namespace skiff::cuda
