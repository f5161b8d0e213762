// ops/cuda/quant/float8_rows.h -- an e4m3 weight, or a stack of them, with a scale for each
// 128 x 128 elements that meets e4m3 activations: its elements stay row by row, as checkpoints have
// them, so that cuBLASLt and the streamed GEMM read the same memory, and wgmma takes both operands
// from shared memory.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/inputs.h"
#include "tensor/memory.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Describes the sizes of such a weight, whose columns are a multiple of 128. A stack's matrices,
// and their scales, follow each other.
struct Float8Rows {
  static constexpr int kBlock = 128;
  int64_t experts = 0, out = 0, in = 0;  // experts: 0 where there is one matrix

  constexpr int64_t matrices() const { return experts > 0 ? experts : 1; }

  // Floats from one row of scales to the next: a multiple of four, as cuBLASLt has it.
  constexpr int64_t scale_stride() const { return (in / kBlock + 3) / 4 * 4; }
  // Rows of scales of a matrix.
  constexpr int64_t scale_rows() const { return (out + kBlock - 1) / kBlock; }
};
inline Float8Rows float8_rows_of(const Linear& w) { return {w.experts, features(w), inputs(w)}; }

// Returns whether a weight of this format and shape is kept row by row. A stack's rows are a
// multiple of 256, so that a gated product takes it whichever it is.
bool keeps_float8_rows(const WeightFormat& format, int64_t experts, int64_t out, int64_t in);

// Bytes of the Buffer that prepare_float8_rows() makes.
size_t float8_rows_bytes(const Float8Rows& rows, bool bias);

// Brings a kPlain weight, from the host or the device, to `device`. Returns once that is done.
Linear prepare_float8_rows(const Linear& plain, Device device, Buffer* owner, cudaStream_t stream);

}  // namespace skiff::cuda
