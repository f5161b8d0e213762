#include "ops/cuda/launch.cuh"
#include "ops/cuda/sum_words.h"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256, kBlocksPerProcessor = 8;
constexpr int kAtOnce = 4;  // loads that a thread has in flight

__global__ void __launch_bounds__(kThreads)
    sum_words_kernel(uint32_t* sum, const uint4* data, size_t count) {
  wait_for_previous();
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  uint32_t mine = 0;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride * kAtOnce) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      v[k] = i + k * stride < count ? __ldcs(data + i + k * stride) : uint4{};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) mine += v[k].x + v[k].y + v[k].z + v[k].w;
  }
  mine = __reduce_add_sync(0xffffffffu, mine);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

}  // namespace

void sum_words(uint32_t* sum, const void* data, size_t bytes, cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>(attribute(cudaDevAttrMultiProcessorCount) * kBlocksPerProcessor);
  launch(sum_words_kernel, {.grid = {blocks}, .block = {kThreads}, .stream = stream}, sum,
         static_cast<const uint4*>(data), bytes / sizeof(uint4));
}

}  // namespace skiff::cuda
