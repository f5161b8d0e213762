// comm/nccl/sums.h -- kernels over what NCCL has gathered. They add up as those of comm/devices/
// do, from rank 0 on in float32, so the bits are the same ones.
#pragma once
#include "comm/devices/exchange.h"

namespace skiff::nccl {

// The rows of all ranks, in one piece of memory: rank r's begin at r * stride and lie one behind
// the other. Those of this rank need not be there; they are read where it has them.
struct Gathered {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // bytes
  int rank = 0, size = 1;
};

// residual += sum of delta over ranks; out = norm(residual).
void start_reduce_add_norm(const Gathered& gathered, const devices::ReduceAddNorm& args,
                           cudaStream_t stream);

// x [rows, cols], f32 or bf16, becomes its sum over ranks.
void start_all_reduce(const Gathered& gathered, cuda::Matrix x, int rows, int cols,
                      cudaStream_t stream);

// For all_gather: the rows of x [rows, cols], f32, one behind the other, as they are sent; and out
// [rows, size * cols] of the rows of all ranks, which lie one behind the other.
void start_packing(float* to, cuda::Matrix x, int rows, int cols, cudaStream_t stream);
void start_spreading(cuda::Matrix out, const float* gathered, int rows, int cols, int size,
                     cudaStream_t stream);

}  // namespace skiff::nccl
