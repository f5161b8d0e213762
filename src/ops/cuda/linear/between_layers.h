// ops/cuda/linear/between_layers.h -- the state of the caches that a product meets in a step.
#pragma once
#include <cuda_runtime.h>

#include "tensor/tensor.h"

namespace skiff::cuda {

// Fills the second-level cache with `scratch`, then reads x: the weights of whatever comes next lie
// in memory only, its rows in the cache. Takes longer than the host needs to start a few kernels,
// so that what comes next does not wait for the host either. `scratch`: more bytes than the cache
// has, a multiple of 16, which are read and not changed. x: rows that start on 16 bytes.
void as_between_layers(const void* scratch, size_t bytes, const Tensor& x, cudaStream_t stream);

}  // namespace skiff::cuda
