// ops/cuda/linear/split_weights.h -- float32 weights (a router's) as bf16 weights three times as
// many, for a library's GEMM of many rows: see float_weights.h for why that is exact.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"

namespace skiff::cuda {

// parts [3 * out, in] bf16: of each weight of w [out, in] the three numbers that add up to it, the
// smallest in the first `out` rows.
void split_weights(Tensor parts, const Tensor& w, cudaStream_t stream);

// out[r, o] = sums[r, o] + sums[r, out + o] + sums[r, 2 * out + o] + bias[o]; sums [rows, 3 * out]
// contiguous; all f32. `bias` may be empty.
void add_parts(Tensor out, const Tensor& sums, const Tensor& bias, cudaStream_t stream);

}  // namespace skiff::cuda
