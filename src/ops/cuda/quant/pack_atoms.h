// ops/cuda/quant/pack_atoms.h -- brings a quantized weight into the order of atoms.h.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/quant/atoms.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Which matrix of a stack of elements is packed, and which of the scales and zero points.
struct PackedMatrix {
  int64_t elements = 0, scales = 0;
};

// Packs one matrix [out, in] of a kPlain weight, all of it on the device, in `format`. `to` has
// AtomShape::matrix_bytes(), and `row_scales` AtomShape::row_scales() floats.
void pack_atoms(void* to, float* row_scales, const Linear& plain, const WeightFormat& format,
                const PackedMatrix& matrix, cudaStream_t stream);

}  // namespace skiff::cuda
