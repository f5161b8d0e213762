// ops/cuda/sum_words.h -- a kernel that reads memory as fast as the device can.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace skiff::cuda {

// *sum += all 32-bit words of `data`, modulo 2^32. `data` is aligned to 16 bytes, and `bytes` is a
// multiple of 16.
void sum_words(uint32_t* sum, const void* data, size_t bytes, cudaStream_t stream);

}  // namespace skiff::cuda
