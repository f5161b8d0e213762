// ops/cuda/quant/unpacked.h -- GEMMs of many rows by block-scaled e4m3 weights through cuBLASLt,
// which reads elements row by row. Weights that are packed as atoms are unpacked into scratch, part
// by part.
//
// A tile of the streamed GEMM reads so much of x and of the weight for each product that the L2
// limits it; the library's tiles are wider, and with enough rows that is worth unpacking.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <optional>

#include "ops/cuda/linear/lt_gemm.h"
#include "ops/cuda/linear/lt_timer.h"
#include "ops/cuda/linear/tuned.h"
#include "ops/cuda/quant/inputs.h"
#include "weights/linear.h"

namespace skiff::cuda {

class UnpackedProducts {
 public:
  // Scratch on the device that nothing else uses meanwhile.
  static constexpr size_t kScratchBytes = size_t{64} << 20;
  static constexpr int kRowStep = 4;  // rows are multiples of this

  UnpackedProducts();
  ~UnpackedProducts();
  UnpackedProducts(const UnpackedProducts&) = delete;
  UnpackedProducts& operator=(const UnpackedProducts&) = delete;

  // Returns whether product() takes the operands: no bias, out bf16 or f32 aligned to 16 bytes, and
  // at least kRowStep rows.
  static bool takes(const Tensor& out, const Tensor& x, const Linear& w);

  // out[rows, out] = x[rows, in] * w^T; `rows` as meet() leaves them for w, with MetRows::
  // chunk_stride rows of scales. Returns false, with nothing started, where cuBLASLt has no
  // algorithm.
  bool product(const Tensor& out, const MetRows& rows, const Linear& w, void* scratch,
               cudaStream_t stream);
  // For start-up: measures the algorithms that cuBLASLt proposes for this number of rows by a
  // weight that lies row by row. product() uses the fastest, also for fewer rows down to the next
  // number that was measured. Not for capturing.
  void tune(const Tensor& out, const MetRows& rows, const Linear& w, void* scratch,
            cudaStream_t stream);

 private:
  using Algorithm = cublasLtMatmulAlgo_t;
  std::optional<Algorithm> choose(const ProductKey& key, const LtGemm& gemm);
  bool unpacked_product(const Tensor& out, const MetRows& rows, const Linear& w, void* scratch,
                        cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  LtTimer timer_;
  std::map<ProductKey, Algorithm> measured_;
  std::map<ProductKey, std::optional<Algorithm>> chosen_;
};

}  // namespace skiff::cuda
