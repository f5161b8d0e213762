#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/read_memory.h"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 512, kBlocks = 512;

// Volatile for both compilers, since nothing uses what is loaded.
__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* data, size_t pieces) {
  wait_for_previous();
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < pieces;
       i += size_t{kBlocks} * kThreads)
    asm volatile(
        "{.reg .b32 a, b, c, d;\n"
        "ld.volatile.global.v4.b32 {a, b, c, d}, [%0];}" ::"l"(data + i)
        : "memory");
}

}  // namespace

void read_memory(const void* data, size_t bytes, cudaStream_t stream) {
  launch(read_kernel, {kBlocks, kThreads, 0, stream}, static_cast<const uint4*>(data), bytes / 16);
}

}  // namespace skiff::cuda
