// ops/cuda/mla/heads.h -- Ops::heads_linear: a GEMM for each head.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <optional>
#include <tuple>

#include "weights/linear.h"

namespace skiff::cuda {

// out[r * heads + h] = x[r * heads + h] * w[h]^T, w [heads, out, in] plain or as Packing::kTiles.
// x, out and w all f32 or all bf16, rounded once. Rows of x and out may be strided. bf16 goes to
// cuBLASLt, and up to 32 rows to kernels of ours; with `one_order`, or where none of them takes
// such a weight, to a kernel in which a row's result does not depend on the number of rows. Driven
// by one thread.
class HeadProducts {
 public:
  static constexpr size_t kScratchBytes = size_t{32} << 20;

  // `scratch`: kScratchBytes on the device that nobody else writes while a product runs.
  HeadProducts(std::byte* scratch, bool one_order);
  ~HeadProducts();
  HeadProducts(const HeadProducts&) = delete;
  HeadProducts& operator=(const HeadProducts&) = delete;

  void product(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream);
  // By cuBLASLt. Returns false, with nothing started, where it has no algorithm. w is plain.
  bool by_library(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream);

 private:
  // rows, heads, in, out, and the strides of x and out.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

  std::byte* scratch_;
  bool one_order_;
  cublasLtHandle_t handle_ = nullptr;  // made with the first product that needs it
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

// HeadProducts' kernels. heads_by_rows takes up to four rows of bf16 with 128 or 512 inputs,
// aligned to 16 bytes, and plain weights; heads_at_once takes up to 32, or 16 where the weights are
// more than 32 KB for each multiprocessor. heads_by_tiles takes any number of such rows, with `in`
// a multiple of 8 and `out` a multiple of 2. heads_by_elements takes any operands.
bool heads_by_rows_takes(const Tensor& out, const Tensor& x, const Linear& w);
void heads_by_rows(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream);
bool heads_at_once_takes(const Tensor& out, const Tensor& x, const Linear& w);
void heads_at_once(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream);
bool heads_by_tiles_takes(const Tensor& out, const Tensor& x, const Linear& w);
void heads_by_tiles(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream);
void heads_by_elements(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream);

}  // namespace skiff::cuda
