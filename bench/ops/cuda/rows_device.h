// bench/ops/cuda/rows_device.h -- what rows_bench.cc asks of the device beside products.
#pragma once
#include <cuda_runtime.h>

#include "weights/linear.h"

namespace skiff::cuda::bench {

void fill_weights(void* weights, size_t bytes);  // random bf16
Tensor random_rows(int64_t rows, int64_t cols);  // bf16
Tensor outputs(DType dtype, int64_t rows, int64_t cols);
// Keeps the device busy for that many cycles, so that the launches behind it queue up.
void spin(int64_t cycles, cudaStream_t stream);
// The worst error of some thousand outputs of a product, as a fraction of the op suite's bound.
double worst_error(const Tensor& out, const Tensor& x, const Linear& w);

}  // namespace skiff::cuda::bench
