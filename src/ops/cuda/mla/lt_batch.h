// ops/cuda/mla/lt_batch.h -- a batch of bf16 GEMMs, one for each head, as cuBLASLt sees it.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <optional>

namespace skiff::cuda {

// A column-major matrix of each head: elements from one column to the next, and from one head to
// the next (0: all heads share it).
struct LtMatrix {
  void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0, head_stride = 0;
};

// d = a * b, or a^T * b, for each head: bf16, with f32 sums.
class LtBatch {
 public:
  LtBatch(const LtMatrix& d, const LtMatrix& a, bool transposed, const LtMatrix& b, int64_t heads);
  ~LtBatch();
  LtBatch(const LtBatch&) = delete;
  LtBatch& operator=(const LtBatch&) = delete;

  // Returns the algorithm that cuBLASLt expects to be fastest with so much scratch, if it has any.
  std::optional<cublasLtMatmulAlgo_t> propose(cublasLtHandle_t handle, size_t scratch_bytes) const;
  // Returns false, with nothing started, where cuBLASLt refuses.
  bool run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, void* scratch,
           size_t scratch_bytes, cudaStream_t stream) const;

 private:
  LtMatrix d_, a_, b_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t d_layout_ = nullptr, a_layout_ = nullptr, b_layout_ = nullptr;
};

}  // namespace skiff::cuda
