// ops/cuda/quant/float8_rows.h -- an e4m3 weight, or a stack of them, with a scale for each
// 128 x 128 elements that meets e4m3 activations: its elements stay row by row, as checkpoints have
// them, so that cuBLASLt and the streamed GEMM read the same memory, and wgmma takes both operands
// from shared memory.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/float8_shape.h"
#include "ops/cuda/quant/inputs.h"
#include "tensor/memory.h"
#include "weights/linear.h"

namespace skiff::cuda {

inline Float8Rows float8_rows_of(const Linear& w) { return {w.experts, features(w), inputs(w)}; }

// Brings a kPlain weight, from the host or the device, to `device`. Returns once that is done.
Linear prepare_float8_rows(const Linear& plain, Device device, Buffer* owner, cudaStream_t stream);

}  // namespace skiff::cuda
