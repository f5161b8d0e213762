// ops/cuda/quant/unpack.h -- packed e4m3 weights as a library's GEMM reads them: row by row.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/quant/atoms.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Returns whether unpack() takes a weight: one matrix of Codes::kFloat8Held with a scale for each
// 128 x 128.
bool unpacks(const Linear& w);

// A part of a weight's rows, padded to blocks of 128 rows and 128 columns.
struct UnpackedRows {
  int64_t first = 0, rows = 0;  // multiples of 128
  int64_t columns = 0;          // the columns of the weight, a multiple of 128

  // Floats from one row of blocks to the next.
  int64_t scale_stride() const { return (columns / kAtomWidth + 3) / 4 * 4; }
  size_t element_bytes() const { return static_cast<size_t>(rows * columns); }
  size_t scale_bytes() const {
    return static_cast<size_t>(rows / 128 * scale_stride()) * sizeof(float);
  }
};

// Writes elements [rows][columns] to `to` and scales [rows / 128][scale_stride()] to `scales`, both
// aligned to 16 bytes.
void unpack(void* to, float* scales, const Linear& w, const UnpackedRows& part,
            cudaStream_t stream);

}  // namespace skiff::cuda
