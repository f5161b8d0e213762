// ops/cuda/linear/small.h -- products whose weights are so few that getting started costs more
// than reading them, as a router's.
#pragma once
#include <cuda_runtime.h>

#include "tensor/tensor.h"

namespace skiff::cuda {

// Up to kSmallRows rows of x in bf16, at most kSmallWeights weights in bf16 or f32, both on 16
// bytes.
constexpr int kSmallRows = 16;
constexpr int64_t kSmallWeights = int64_t{1} << 19, kSmallIn = 8192;
bool small_product_takes(const Tensor& x, const Tensor& w);

// out[rows, out] = x[rows, in] * w[out, in]^T + bias (f32 [out] or empty); out bf16 or f32. Each
// row of weights is read once, before the wait for the kernel before it. What a row gives does not
// depend on the others.
void small_product(Tensor out, Tensor x, Tensor w, Tensor bias, cudaStream_t stream);

}  // namespace skiff::cuda
