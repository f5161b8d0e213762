// ops/cuda/linear/float_weights.h -- bf16 rows times float32 weights, as a router's, on the tensor
// cores.
//
// A float32 number is the sum of three bf16 numbers, and each of them times a bf16 number is exact
// in f32: three products with f32 sums lose nothing that one in f32 would keep.
#pragma once
#include <cuda_runtime.h>

#include "tensor/tensor.h"

namespace skiff::cuda {

// x bf16, w f32 and contiguous, out f32; rows of x and w start on 16 bytes, in is a multiple of 8.
bool float_weights_take(const Tensor& out, const Tensor& x, const Tensor& w);

// out[rows, out] = x[rows, in] * w[out, in]^T + bias (f32 [out] or empty).
void float_weights_product(Tensor out, Tensor x, Tensor w, Tensor bias, cudaStream_t stream);

}  // namespace skiff::cuda
