// ops/cuda/linear/pack_tiles.h -- makes Packing::kTiles (tiles.h) on the device.
#pragma once
#include <cuda_runtime.h>

#include "tensor/tensor.h"

namespace skiff::cuda {

// Packs a contiguous bf16 matrix [rows, in] that fits_tiles() to `to`, which does not overlap it.
void pack_tiles(void* to, const Tensor& matrix, cudaStream_t stream);

}  // namespace skiff::cuda
