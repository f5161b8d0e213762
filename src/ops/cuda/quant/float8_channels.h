// ops/cuda/quant/float8_channels.h -- an e4m3 weight with a scale for each output that meets e4m3
// activations with a scale for each row: both scales multiply the sum of a whole row's products.
// Its elements stay row by row, as checkpoints have them, so that cuBLASLt and our kernels read the
// same memory.
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/float8_shape.h"
#include "tensor/memory.h"
#include "weights/linear.h"

namespace skiff::cuda {

inline Float8Channels float8_channels_of(const Linear& w) { return {features(w), inputs(w)}; }

// Brings a kPlain weight, from the host or the device, to `device`. Returns once that is done.
Linear prepare_float8_channels(const Linear& plain, Device device, Buffer* owner,
                               cudaStream_t stream);

}  // namespace skiff::cuda
