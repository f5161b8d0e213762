// ops/cuda/linear/tiled.h -- products of any shape, alignment and dtype, on the plain cores.
//
// What the fast kernels do not take comes here: f32 activations, rows that do not start on 16
// bytes. Each output is one chain of fused multiply-adds in f32 over in = 0, 1, ..., so it does
// not depend on how many rows there are.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/jobs.h"
#include "tensor/tensor.h"

namespace skiff::cuda {

// out[rows, out] = x[rows, in] * w[out, in]^T + bias. x and w are both f32 or both bf16, or x
// bf16 and w f32; out f32 or bf16, bias [out] f32 or empty. Rows of x and out may be strided.
void tiled_product(Tensor out, Tensor x, Tensor w, Tensor bias, cudaStream_t stream);

// Rows [job.first, job.first + job.rows) of out = the same rows of x times w[job.expert]^T, for
// each job of the list, which lies on the device. w is [experts, out, in]. Jobs hold at most
// kTiledJobRows rows.
constexpr int kTiledJobRows = 64;
void tiled_product(Tensor out, Tensor x, Tensor w, const JobList& jobs, cudaStream_t stream);

}  // namespace skiff::cuda
