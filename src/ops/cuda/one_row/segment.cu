#include "ops/cuda/one_row/segment.h"

#include <cstddef>

#include "ops/cuda/one_row/filler.cuh"
#include "ops/cuda/one_row/reader.cuh"

namespace skiff::cuda {
namespace {

using namespace segment;

__global__ void __launch_bounds__(kThreadsWorth, 1)
    segment_kernel(const __grid_constant__ Segment s) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char memory[];
  __shared__ Shared shared;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRingItems; ++i) {
      barrier_init(shared_address(&shared.ring.full[i]), 1);
      barrier_init(shared_address(&shared.ring.empty[i]), kWarps);
    }
    barrier_init_done();
    fence_async();
  }
  const auto* from = reinterpret_cast<const uint4*>(&s);
  const int words = static_cast<int>(offsetof(Segment, step) + s.steps * sizeof(SegmentStep)) / 16;
  for (int i = threadIdx.x; i < words; i += kThreads) shared.words[i] = from[i];
  __syncthreads();
  if (threadIdx.x < kReaders) {
    Reader(memory, shared).run();
  } else {
    let_next_start();
    Filler(memory, shared).run();
  }
#endif
}

}  // namespace

int segment_ring_bytes(int x_bytes) {
  const int others = x_bytes + kPartialBytes + static_cast<int>(sizeof(Shared));
  return (kSegmentShared - others) / 1024 * 1024;
}

void allow_segments() { allow_shared(segment_kernel, kSegmentShared); }

void start_segment(const Segment& segment, int blocks, cudaStream_t stream) {
  static_assert(sizeof(Segment) < 4096);
  const Launch how = {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(kThreads),
                      .shared = kSegmentShared - sizeof(Shared),
                      .stream = stream};
  launch(segment_kernel, how, segment);
}

}  // namespace skiff::cuda
