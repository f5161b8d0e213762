// ops/cuda/linear/tiled.h -- GEMMs of any shape, alignment and dtype, without tensor cores.
//
// It takes what the fast kernels do not: f32 activations, rows that are not aligned to 16 bytes.
// Each output is one chain of fused multiply-adds in f32 over in = 0, 1, ..., so it does not depend
// on the number of rows.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/jobs.h"
#include "weights/linear.h"

namespace skiff::cuda {

// out[rows, out] = x[rows, in] * w^T + bias; w [out, in], plain. x and w are both f32 or both bf16,
// or x bf16 and w f32; out f32 or bf16. Rows of x and out may be strided.
void tiled_product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);

// The grouped GEMM: rows [job.first, job.first + job.rows) of out = the same rows of x times
// w[job.expert]^T, for each job of the list, which lies on the device. w is a stack without a bias,
// plain or as Packing::kTiles. A job has at most kTiledJobRows rows.
constexpr int kTiledJobRows = 64;
void tiled_product(Tensor out, Tensor x, const Linear& w, const JobList& jobs, cudaStream_t stream);

}  // namespace skiff::cuda
