// ops/cuda/linear/float_weights.h -- bf16 rows times float32 weights (a router's) on the tensor
// cores.
//
// A float32 number is the sum of three bf16 numbers, and each of these times a bf16 number is exact
// in f32: three bf16 GEMMs with f32 sums are as accurate as one in f32.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"

namespace skiff::cuda {

// x bf16, w plain f32, out f32; rows of x and w aligned to 16 bytes, `in` a multiple of 8.
bool float_weights_take(const Tensor& out, const Tensor& x, const Linear& w);

struct FloatWeightsMode {
  bool one_order = false;  // the result does not depend, bit for bit, on the number of rows
  bool hopper = false;     // the device runs wgmma (StreamedProducts::runs)
  bool beside = false;     // begins while the product before runs (ops/cuda/beside.h)
};

// out[rows, out] = x[rows, in] * w^T + bias; w [out, in].
void float_weights_product(Tensor out, Tensor x, const Linear& w, FloatWeightsMode mode,
                           cudaStream_t stream);

}  // namespace skiff::cuda
