// ops/cuda/linear/dense.h -- Ops::linear on the device: the fastest of our kernels and cuBLASLt.
#pragma once
#include "ops/cuda/linear/cublaslt.h"
#include "weights/linear.h"

namespace skiff::cuda {

// out[rows, out] = x[rows, in] * w^T + bias, rounded once. x and w both f32 or both bf16, w plain
// and contiguous; out f32 or the dtype of x. Rows of x and out may be strided. Allocates nothing
// and waits for nothing outside tune(), so steps can be captured. Driven by one thread.
class DenseProducts {
 public:
  // Bytes of the scratch given to the constructor: for products of up to max_rows rows by a weight
  // of up to max_biased_out outputs that has a bias.
  static size_t scratch_bytes(int64_t max_rows, int64_t max_biased_out);
  DenseProducts(void* scratch, size_t bytes) : scratch_(scratch), bytes_(bytes) {}

  void product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);
  // Start-up: chooses by measuring, for all rows up to the next power of two. Writes out.
  void tune(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);

 private:
  Tensor before_bias(const Tensor& out, const Linear& w) const;

  CublasLt library_;
  void* scratch_;
  size_t bytes_;
};

}  // namespace skiff::cuda
