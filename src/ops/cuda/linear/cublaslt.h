// ops/cuda/linear/cublaslt.h -- bf16 GEMMs of many rows by cuBLASLt.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ops/cuda/linear/lt_gemm.h"
#include "ops/cuda/linear/lt_timer.h"
#include "ops/cuda/linear/tuned.h"
#include "weights/linear.h"

namespace skiff::cuda {

// out[rows, out] = x[rows, in] * w^T, bf16 times bf16 with f32 sums, out bf16 or f32; a bias is not
// added. Owns a cuBLASLt handle, and what was measured of its algorithms. Driven by one thread.
class CublasLt {
 public:
  static constexpr size_t kWorkspaceBytes = LtGemm::kWorkspaceBytes;

  // `one_order`: every result is the sum over the inner dimension from its beginning to its end, 16
  // elements at a time, as the tensor cores of Hopper add them: bit for bit what StreamedProducts
  // computes in whole tiles. Only algorithms are taken for which the op suite shows that.
  explicit CublasLt(bool one_order = false);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Returns whether cuBLASLt takes these operands: bf16, w plain, rows aligned to 16 bytes.
  static bool takes(const Tensor& out, const Tensor& x, const Linear& w);

  // `workspace`: kWorkspaceBytes on the device that nothing else uses meanwhile. Returns false,
  // with nothing started, when cuBLASLt has no algorithm.
  bool product(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
               cudaStream_t stream);

  // For start-up: computes the GEMM by one of the algorithms that cuBLASLt proposes, and measures
  // its time on the device: each call tries the algorithm that was tried least so far, and settle()
  // chooses the fastest. Meant to be called for one layer after the other, so that the weights come
  // from memory as in a step; where a weight exceeds the device's L2, one call tries all
  // algorithms. The first call also measures the row counts below x.rows() (row_counts.h), down to
  // the largest that is known, so numbers of rows should rise. Not for capturing; settle() must
  // come before anything is captured. Returns false, with nothing computed, when cuBLASLt has no
  // algorithm.
  bool tune(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
            cudaStream_t stream);
  // Waits for the trials in flight. What was measured is used from here on.
  void settle();

  // What tune() found out, for adopt() of another process. adopt() returns false and changes
  // nothing where that process had another version of cuBLASLt or another kind of device; otherwise
  // its algorithms are used, and tune() does not measure their row counts.
  TunedProducts tuned() const;
  bool adopt(const TunedProducts& tuned);

 private:
  using Algorithm = cublasLtMatmulAlgo_t;
  LtGemm gemm(const Tensor& out, const Tensor& x, const Linear& w) const {
    return LtGemm(handle_, out, x, w.weight, one_order_);
  }
  std::optional<Algorithm> choose(const ProductKey& key, const LtGemm& gemm);
  std::optional<Algorithm> measured(const ProductKey& key) const;
  std::optional<Algorithm> fastest(const LtGemm& gemm, const std::optional<Algorithm>& neighbour,
                                   void* workspace, cudaStream_t stream);
  void tune_below(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
                  cudaStream_t stream);
  bool try_one(const LtGemm& gemm, LtTrials& trials, void* workspace, cudaStream_t stream);

  bool one_order_;
  cublasLtHandle_t handle_ = nullptr;
  LtTimer timer_;
  std::set<ProductAlgorithm> loaded_;         // algorithms that have run in this process
  std::map<ProductKey, LtTrials> trials_;     // the trials of steps that were rehearsed
  std::map<ProductKey, Algorithm> measured_;  // keyed by exact rows, like all of these
  std::map<ProductKey, std::optional<Algorithm>> chosen_;
};

}  // namespace skiff::cuda
