// ops/cuda/quant/prepare.h -- Ops::prepare for quantized weights.
#pragma once
#include <cuda_runtime.h>

#include "tensor/memory.h"
#include "weights/linear.h"
#include "weights/weight_shape.h"

namespace skiff::cuda {

// `streamed`: the streamed GEMM runs on this device.

// Bytes of the Buffer that prepare_quantized() makes. CHECKs that atom_format() has the format.
size_t prepared_quantized_bytes(const WeightShape& shape, const WeightFormat& keep, bool streamed);

// Packs a kPlain weight in the format `keep`, on the host or on `device`, as quant/atoms.h says or,
// where streamed, quant/float8_rows.h or
// quant/float8_channels.h. Returns once that is done.
Linear prepare_quantized(const Linear& plain, const WeightFormat& keep, Device device,
                         Buffer* owner, cudaStream_t stream, bool streamed);

}  // namespace skiff::cuda
