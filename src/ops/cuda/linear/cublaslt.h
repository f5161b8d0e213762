// ops/cuda/linear/cublaslt.h -- bf16 products of many rows by NVIDIA's library.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "tensor/tensor.h"

namespace skiff::cuda {

// out[rows, out] = x[rows, in] * w[out, in]^T, bf16 times bf16 with f32 sums, out bf16 or f32.
// Owns a library handle and the table of chosen algorithms. Driven by one thread.
//
// Which sum order an algorithm has depends on rows, so results of different row counts may differ
// in the last bits.
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

  // Computes the product, by one of the algorithms that the library proposes, and takes the time:
  // each call tries the one tried least so far, and from then on the fastest serves all row counts
  // of the same bucket (up to 8, 16, 32, ...). Called for a layer after the other, so that the
  // weights come from memory as they will. For start-up: it waits for the device.
  void tune(const Tensor& out, const Tensor& x, const Tensor& w, void* workspace,
            cudaStream_t stream);

 private:
  struct Problem;
  using Key = std::tuple<int64_t, int64_t, int64_t, DType>;  // rows, in, out, dtype of out

  struct Trial {
    cublasLtMatmulAlgo_t algo;
    int runs = 0;
    float best = 0;  // milliseconds; of all runs but the first
  };
  std::vector<Trial> propose(const Problem& problem);
  static const Trial& fastest(const std::vector<Trial>& trials);
  std::optional<cublasLtMatmulAlgo_t> choose(const Key& key, const Problem& problem);
  bool run(const Problem& problem, const cublasLtMatmulAlgo_t& algo, const Tensor& out,
           const Tensor& x, const Tensor& w, void* workspace, cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::map<Key, std::vector<Trial>> trials_;                   // rows: a bucket's upper end
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> chosen_;  // rows: exact
};

}  // namespace skiff::cuda
