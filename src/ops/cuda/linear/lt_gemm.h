// ops/cuda/linear/lt_gemm.h -- one GEMM as cuBLASLt sees it: its description, the algorithms that
// cuBLASLt proposes for it, and its launch.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <vector>

#include "ops/cuda/linear/tuned.h"
#include "tensor/tensor.h"

namespace skiff::cuda {

// Returns the key of the product that makes out [rows, features] of x [rows, in].
ProductKey key_of(const Tensor& out, const Tensor& x);

// Throws DeviceError unless a call of cuBLASLt succeeded.
void check_lt(cublasStatus_t status, const char* doing);

// Returns whether a sum over the inner dimension is computed from its beginning to its end, 16
// elements at a time, as the tensor cores of Hopper add them: bit for bit what StreamedProducts
// computes in whole tiles. The op suite shows it for algorithms of which this is true.
bool adds_in_one_order(const cublasLtMatmulAlgo_t& algorithm);

// The scales of an e4m3 GEMM: of 128 x 128 weights, [features / 128][in / 128, rounded up to a
// multiple of four], and of 128 elements of each row of x, [in / 128][rows].
struct BlockScales {
  const float *w = nullptr, *x = nullptr;
};

// The scales of an e4m3 GEMM: one of each row of w and of x.
struct ChannelScales {
  const float *w = nullptr, *x = nullptr;
};

// out[rows, features] = x[rows, in] * w^T, bf16 times bf16, or e4m3 times e4m3 with scales; f32
// sums, out bf16 or f32. With ChannelScales a sum stays in the tensor cores from its beginning to
// its end, which costs bits (docs/quantization.md) and is faster.
class LtGemm {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;
  static constexpr size_t kScaledWorkspaceBytes = size_t{16} << 20;  // for an e4m3 GEMM
  // The alignment of operands in bytes. cuBLASLt's default is 256, more than arenas give.
  static constexpr uint32_t kAlignment = 16;

  // `one_order`: propose() gives only algorithms for which adds_in_one_order().
  LtGemm(cublasLtHandle_t handle, const Tensor& out, const Tensor& x, const Tensor& w,
         bool one_order = false);
  LtGemm(cublasLtHandle_t handle, const Tensor& out, const Tensor& x, const Tensor& w,
         const BlockScales& scales);
  LtGemm(cublasLtHandle_t handle, const Tensor& out, const Tensor& x, const Tensor& w,
         const ChannelScales& scales);
  ~LtGemm();
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;

  int64_t rows() const { return x_.rows(); }
  const Tensor& x() const { return x_; }

  struct Proposal {
    cublasLtMatmulAlgo_t algorithm;
    float waves = 0;  // how often the device's multiprocessors are filled
  };
  // Returns up to `most` algorithms, the one that cuBLASLt expects to be fastest first. For more
  // than kSplitRows rows (row_counts.h) split-K is proposed only where there is nothing else: the
  // other algorithms add in one order, so that the result of a prompt's token seldom depends on the
  // other rows of its step, though nothing promises it.
  std::vector<Proposal> propose(int most) const;
  bool works(const cublasLtMatmulAlgo_t& algorithm) const;
  // `workspace`: kWorkspaceBytes (kScaledWorkspaceBytes) on the device that nothing else uses
  // meanwhile. Returns false, with nothing started, where cuBLASLt refuses.
  bool run(const cublasLtMatmulAlgo_t& algorithm, void* workspace, cudaStream_t stream) const;

 private:
  template <class T>
  void describe(cublasLtMatmulDescAttributes_t what, const T& value);

  cublasLtHandle_t handle_;
  Tensor out_, x_, w_;
  bool one_order_;
  size_t workspace_bytes_ = kWorkspaceBytes;
  // cuBLASLt is column-major: its A is w and its B is x, both stored with `in` running fastest.
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t w_layout_ = nullptr, x_layout_ = nullptr, out_layout_ = nullptr;
};

}  // namespace skiff::cuda
