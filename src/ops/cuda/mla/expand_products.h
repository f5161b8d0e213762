// ops/cuda/mla/expand_products.h -- keys and values of each head, from latents.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <tuple>

#include "weights/linear.h"

namespace skiff::cuda {

// out[h][r] = latents[r] * W[first_head + h] for each h of out [heads, positions, 128], of which
// rows [first, first + latents.rows()) are written. latents [rows, 512]; all bf16. Both stacks are
// used as they lie for the absorbed form. Driven by one thread.
class ExpandProducts {
 public:
  // `scratch`: HeadProducts::kScratchBytes on the device that nobody else writes meanwhile.
  explicit ExpandProducts(std::byte* scratch) : scratch_(scratch) {}
  ~ExpandProducts();
  ExpandProducts(const ExpandProducts&) = delete;
  ExpandProducts& operator=(const ExpandProducts&) = delete;

  // W = absorb [all heads, 512, 128], plain.
  void keys(const Tensor& out, int64_t first, const Tensor& latents, const Linear& absorb,
            int first_head, cudaStream_t stream);
  // W = value[h]^T, value [all heads, 128, 512], plain.
  void values(const Tensor& out, int64_t first, const Tensor& latents, const Linear& value,
              int first_head, cudaStream_t stream);

 private:
  // rows, heads, and whether these are values.
  using Key = std::tuple<int64_t, int64_t, bool>;
  void product(const Tensor& out, int64_t first, const Tensor& latents, const Linear& w,
               int first_head, bool values, cudaStream_t stream);

  std::byte* scratch_;
  cublasLtHandle_t handle_ = nullptr;  // made with the first product
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace skiff::cuda
