#include "ops/cuda/few/segment.h"

#include <cstddef>

#include "ops/cuda/few/filler.cuh"
#include "ops/cuda/few/reader.cuh"

namespace skiff::cuda {
namespace {

using namespace segment;

// One warp. Every block routes for itself, beside the steps; the first writes the routing.
[[maybe_unused]] __device__ void route(const Segment& s, Shared& shared) {
  const SegmentRouting& g = s.routing;
  const int lane = threadIdx.x % 32;
  barrier_wait(shared_address(&shared.counters_read), 0);
  if (lane == 0) poll(s, shared, g.wait);
  __syncwarp();
  const Choice c = {.expert = shared.expert,
                    .weight = shared.weight,
                    .logits = g.logits,
                    .bias = g.bias,
                    .logits_stride = 0,
                    .tokens = 1,
                    .experts = g.experts,
                    .top_k = g.top_k,
                    .always = g.always,
                    .renorm = g.renorm,
                    .live = nullptr};
  if (g.experts <= 64)
    Chooser<2>(c).choose(0, c.expert, c.weight);
  else if (g.experts <= 128)
    Chooser<4>(c).choose(0, c.expert, c.weight);
  else
    Chooser<kMostExperts / 32>(c).choose(0, c.expert, c.weight);
  __syncwarp();
  if (lane == 0) barrier_arrive(shared_address(&shared.routed));
  if (blockIdx.x > 0) return;
  const int each = g.top_k + g.always, experts = g.experts + g.always;
  const auto below = [&](int e) {
    int n = 0;
    for (int k = 0; k < each; ++k) n += shared.expert[k] < e;
    return n;
  };
  if (lane < each) {
    g.expert[lane] = shared.expert[lane];
    g.weight[lane] = shared.weight[lane];
    g.order[below(shared.expert[lane])] = lane;
  }
  for (int e = lane; e <= experts; e += 32) g.start[e] = below(e);
}

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
    barrier_init(shared_address(&shared.counters_read), 1);
    barrier_init(shared_address(&shared.routed), 1);
    barrier_init_fence();
  }
  const auto* from = reinterpret_cast<const uint4*>(&s);
  const int words = static_cast<int>(offsetof(Segment, step) + s.steps * sizeof(SegmentStep)) / 16;
  for (int i = threadIdx.x; i < words; i += kThreads) shared.words[i] = from[i];
  __syncthreads();
  if (threadIdx.x < kReaders) {
    Reader<kSegmentRows>(memory, shared).run();
  } else if (threadIdx.x < kReaders + 32) {
    let_next_start();
    Filler(memory, shared).run();
  } else if (s.routing.logits) {
    route(shared.segment(), shared);
  }
#endif
}

}  // namespace

int segment_ring_bytes(int x_bytes) {
  const int others = x_bytes + kPartialBytes + kSumsBytes + static_cast<int>(sizeof(Shared));
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
