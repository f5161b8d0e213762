// ops/cuda/linear/small.h -- GEMMs with so small a weight that latency counts more than bandwidth,
// as a router's.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"

namespace skiff::cuda {

// Up to kSmallRows rows of x in bf16, or kSmallFloatRows where weights are f32, because of more of
// these float_weights_product() is faster; at most kSmallWeights plain weights in bf16 or f32, both
// aligned to 16 bytes.
constexpr int kSmallRows = 16, kSmallFloatRows = 4;
constexpr int64_t kSmallWeights = int64_t{1} << 19, kSmallIn = 8192;
bool small_product_takes(const Tensor& x, const Linear& w);

// out[rows, out] = x[rows, in] * w^T + bias; w [out, in], out bf16 or f32. Each weight is read
// once, before griddepcontrol.wait. The outputs of a row do not depend on the other rows.
void small_product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);

}  // namespace skiff::cuda
