// ops/cuda/linear/cublaslt.h -- bf16 GEMMs of many rows by cuBLASLt.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ops/cuda/linear/tuned.h"
#include "weights/linear.h"

namespace skiff::cuda {

// out[rows, out] = x[rows, in] * w^T, bf16 times bf16 with f32 sums, out bf16 or f32; a bias is not
// added. Owns a cuBLASLt handle and the table of chosen algorithms. Driven by one thread.
//
// With more than kOneOrderRows rows a split-K algorithm is taken only where cuBLASLt has no other.
// The others add in one order, so that the result of a prompt's token seldom depends on the other
// rows of its step, though nothing promises it.
class CublasLt {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;

  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Whether cuBLASLt takes these operands: bf16, w plain, rows aligned to 16 bytes.
  static bool takes(const Tensor& out, const Tensor& x, const Linear& w);

  // `workspace`: kWorkspaceBytes on the device that nothing else uses meanwhile. Returns false,
  // with nothing started, when cuBLASLt has no algorithm.
  bool product(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
               cudaStream_t stream);

  // Computes the GEMM by one of the algorithms that cuBLASLt proposes, and measures its time on the
  // device: each call tries the algorithm that was tried least so far, and after settle() the
  // fastest serves all row counts of the same bucket (up to 8, 16, 32, ...). Meant to be called for
  // one layer after the other, so that the weights come from memory as in a step; where a weight
  // exceeds the device's L2, one call tries all algorithms. For start-up; settle() must come before
  // anything is captured. Returns false, with nothing computed, when cuBLASLt has no algorithm.
  bool tune(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
            cudaStream_t stream);
  // Waits for the trials in flight.
  void settle();

  // What tune() found out, for adopt() of another process. adopt() returns false and changes
  // nothing where that process had another version of cuBLASLt or another kind of device; otherwise
  // its algorithms are used, and tune() tries no others.
  TunedProducts tuned() const;
  bool adopt(const TunedProducts& tuned);

 private:
  struct Problem;

  static constexpr int kMaxPending = 64;  // trials in flight
  struct Trial {
    cublasLtMatmulAlgo_t algo;
    int runs = 0;           // runs that were started
    std::vector<float> ms;  // times of the runs that have ended, without the first
    float typical() const;  // the median; infinity where nothing was measured
  };
  // A trial in flight; std::map keeps pointers to its elements valid.
  struct Timing {
    Trial* trial;
    cudaEvent_t begin, end;
  };
  std::vector<cublasLtMatmulAlgo_t> propose(const Problem& problem, int64_t rows, int max_count);
  static const Trial& fastest(const std::vector<Trial>& trials);
  bool try_one(std::vector<Trial>& trials, const std::function<bool(const Trial&)>& run,
               cudaStream_t stream);
  void collect_oldest();  // waits for the oldest trial in flight and records its time
  std::optional<cublasLtMatmulAlgo_t> choose(const ProductKey& key, const Problem& problem);
  std::optional<cublasLtMatmulAlgo_t> measured(const ProductKey& bucket) const;
  bool works(const cublasLtMatmulAlgo_t& algo, const Problem& problem) const;
  bool run(const Problem& problem, const cublasLtMatmulAlgo_t& algo, const Tensor& out,
           const Tensor& x, const Linear& w, void* workspace, cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  std::vector<std::pair<cudaEvent_t, cudaEvent_t>> free_;
  std::deque<Timing> pending_;
  std::map<ProductKey, std::vector<Trial>> trials_;                   // keyed by bucket
  std::map<ProductKey, cublasLtMatmulAlgo_t> adopted_;                // keyed by bucket
  std::map<ProductKey, std::optional<cublasLtMatmulAlgo_t>> chosen_;  // keyed by exact rows
};

}  // namespace skiff::cuda
