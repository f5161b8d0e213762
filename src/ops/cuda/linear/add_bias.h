// ops/cuda/linear/add_bias.h -- adds the bias to the f32 sums of a GEMM.
#pragma once
#include <cuda_runtime.h>

#include "tensor/tensor.h"

namespace skiff::cuda {

// out = sums + bias, rounded once. sums [rows, cols] f32 (may be out itself), bias [cols] f32,
// out f32 or bf16.
void add_bias(Tensor out, Tensor sums, Tensor bias, cudaStream_t stream);

}  // namespace skiff::cuda
