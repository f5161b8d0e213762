// ops/cuda/linear/float_weights_rows.h -- tens of bf16 rows times float32 weights on Hopper.
//
// With so many rows the time of a router's product is latency, and the bytes that a multiprocessor
// can load. A block begins to copy its weights before it waits for its rows, splits each weight
// into bf16 numbers once for all rows (float_weights.h), and multiplies by wgmma.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"

namespace skiff::cuda {

// Returns whether these kernels take a product that float_weights_take() takes, and are faster than
// those of float_weights.h: by the numbers of rows and outputs, and if the shared memory of a
// cluster has room for rows of such a length. Needs wgmma (StreamedProducts::runs).
bool float_weights_rows_take(const Tensor& x, const Linear& w);

// out[rows, out] = x[rows, in] * w^T + bias. The order of additions follows from `in` alone.
// `beside`: begins while the product before runs (ops/cuda/beside.h).
void float_weights_rows(Tensor out, Tensor x, const Linear& w, bool beside, cudaStream_t stream);

}  // namespace skiff::cuda
