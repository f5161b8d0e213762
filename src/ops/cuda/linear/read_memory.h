// ops/cuda/linear/read_memory.h -- reads memory of the device, so that the L2 holds it.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

namespace skiff::cuda {

// Reads whole pieces of 16 bytes, up to `bytes`; `data` is aligned to 16.
void read_memory(const void* data, size_t bytes, cudaStream_t stream);

}  // namespace skiff::cuda
