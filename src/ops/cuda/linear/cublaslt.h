// ops/cuda/linear/cublaslt.h -- bf16 products of many rows by NVIDIA's library.
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
#include "tensor/tensor.h"

namespace skiff::cuda {

// out[rows, out] = x[rows, in] * w[out, in]^T, bf16 times bf16 with f32 sums, out bf16 or f32.
// Owns a library handle and the table of chosen algorithms. Driven by one thread.
//
// An algorithm may cut the inner dimension and add the parts up; with more than kOneOrderRows rows
// such are taken only where the library has no other. The rest add in one order, so that what a
// prompt's token comes to seldom depends on which others share its step, though nothing promises
// it.
class CublasLt {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;

  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Whether the library takes these operands: bf16, rows starting on 16 bytes.
  static bool takes(const Tensor& out, const Tensor& x, const Tensor& w);

  // `workspace`: kWorkspaceBytes on the device that nothing else uses meanwhile. False, with
  // nothing started, when the library has no algorithm.
  bool product(const Tensor& out, const Tensor& x, const Tensor& w, void* workspace,
               cudaStream_t stream);

  // Computes the product, by one of the algorithms that the library proposes, and takes the time on
  // the device: each call tries the one tried least so far, and from then on the fastest serves all
  // row counts of the same bucket (up to 8, 16, 32, ...). Called for a layer after the other, so
  // that the weights come from memory as they will; where they are more than the device's cache
  // holds, one call tries all. For start-up, and settle() before anything is captured. False,
  // with nothing computed, when the library has no algorithm.
  bool tune(const Tensor& out, const Tensor& x, const Tensor& w, void* workspace,
            cudaStream_t stream);
  // Waits for the trials on their way.
  void settle();

  // What tune() found out, for adopt() of another process. adopt() is false, and nothing taken,
  // where that one had another version of the library or another kind of device; else its
  // algorithms are used, and tune() tries no others.
  TunedProducts tuned() const;
  bool adopt(const TunedProducts& tuned);

 private:
  struct Problem;

  static constexpr int kPending = 64;  // trials that may be on their way
  struct Trial {
    cublasLtMatmulAlgo_t algo;
    int runs = 0;           // started
    std::vector<float> ms;  // of all runs that have ended but the first
    float typical() const;  // infinity: not measured
  };
  // A trial on its way; references into a map stay good.
  struct Timing {
    Trial* trial;
    cudaEvent_t begin, end;
  };
  std::vector<cublasLtMatmulAlgo_t> propose(const Problem& problem, int64_t rows, int most);
  static const Trial& fastest(const std::vector<Trial>& trials);
  bool try_one(std::vector<Trial>& trials, const std::function<bool(const Trial&)>& run,
               cudaStream_t stream);
  void note_oldest();  // timing
  std::optional<cublasLtMatmulAlgo_t> choose(const ProductKey& key, const Problem& problem);
  std::optional<cublasLtMatmulAlgo_t> measured(const ProductKey& bucket) const;
  bool works(const cublasLtMatmulAlgo_t& algo, const Problem& problem) const;
  bool run(const Problem& problem, const cublasLtMatmulAlgo_t& algo, const Tensor& out,
           const Tensor& x, const Tensor& w, void* workspace, cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  std::vector<std::pair<cudaEvent_t, cudaEvent_t>> free_;
  std::deque<Timing> pending_;
  std::map<ProductKey, std::vector<Trial>> trials_;                   // rows: a bucket's upper end
  std::map<ProductKey, cublasLtMatmulAlgo_t> adopted_;                // the same
  std::map<ProductKey, std::optional<cublasLtMatmulAlgo_t>> chosen_;  // rows: exact
};

}  // namespace skiff::cuda
