// ops/cuda/linear/float_weights_rows.h -- tens of bf16 rows times float32 weights on Hopper.
//
// So many rows leave a router's product to latency and to what a multiprocessor can take in. A
// block has its weights under way before it waits for its rows, splits each into bf16 numbers once
// for all of them (float_weights.h), and multiplies by wgmma.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"

namespace skiff::cuda {

// Besides what float_weights_take() says: so many rows, few enough, and so many outputs that it is
// faster, and a row of which a cluster's shared memory holds enough. Needs wgmma
// (StreamedProducts::runs).
bool float_weights_rows_take(const Tensor& x, const Linear& w);

// out[rows, out] = x[rows, in] * w^T + bias. The order of additions follows from `in` alone.
// `beside`: begins while the product before runs (ops/cuda/beside.h).
void float_weights_rows(Tensor out, Tensor x, const Linear& w, bool beside, cudaStream_t stream);

}  // namespace skiff::cuda
