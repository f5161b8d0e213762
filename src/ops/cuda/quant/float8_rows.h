// ops/cuda/quant/float8_rows.h -- a dense e4m3 weight with a scale for each 128 x 128 elements that
// meets e4m3 activations: its elements stay row by row, as checkpoints have them, so that cuBLASLt
// and the streamed GEMM read the same memory.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/inputs.h"
#include "tensor/memory.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Describes the sizes of such a weight, whose columns are a multiple of 128.
struct Float8Rows {
  static constexpr int kBlock = 128;
  int64_t out = 0, in = 0;

  // Floats from one row of scales to the next: a multiple of four, as cuBLASLt has it.
  int64_t scale_stride() const { return (in / kBlock + 3) / 4 * 4; }
  int64_t scale_rows() const { return (out + kBlock - 1) / kBlock; }
};

// Returns whether a weight of this format and shape is kept row by row.
bool keeps_float8_rows(const WeightFormat& format, int64_t experts, int64_t out, int64_t in);

// Bytes of the Buffer that prepare_float8_rows() makes.
size_t float8_rows_bytes(const Float8Rows& rows, bool bias);

// Brings a kPlain weight, from the host or the device, to `device`. Returns once that is done.
Linear prepare_float8_rows(const Linear& plain, Device device, Buffer* owner, cudaStream_t stream);

}  // namespace skiff::cuda
