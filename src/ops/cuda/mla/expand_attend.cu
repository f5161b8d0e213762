// Attention of many rows to expanded keys and values (expand_kernel.cuh).
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/hopper/registers.cuh"
#include "ops/cuda/mla/expand_kernel.cuh"

namespace skiff::cuda {
namespace {

using namespace expand;

__global__ void __launch_bounds__(kThreads, 1)
    expand_attend_kernel(const __grid_constant__ ExpandAttendArgs p,
                         const __grid_constant__ ExpandMaps maps) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // ExpandedAttention launches it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&shared.q_full), 1);
    barrier_init(shared_address(&shared.q_empty), kGroups);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&shared.k_full[i]), 1);
      barrier_init(shared_address(&shared.v_full[i]), 1);
      barrier_init(shared_address(&shared.k_empty[i]), kGroups);
      barrier_init(shared_address(&shared.v_empty[i]), kGroups);
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  // The shuffle shows the compiler that the value is the same in all threads of a warp.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (group == kGroups) {
    fewer_registers<40>();
    if (threadIdx.x < kGroups * kGroupThreads + 32 && elected()) copy_tiles(p, maps, shared);
  } else {
    more_registers<232>();
    attend_all(p, group, shared);
  }
#endif
}

}  // namespace

void start_expand_attend(const ExpandAttendArgs& args, const ExpandMaps& maps, int processors,
                         cudaStream_t stream) {
  SKIFF_CHECK(args.section > 0 && args.section <= args.heads);
  const Launch how = {
      .grid = dim3(static_cast<unsigned>(std::min(processors, args.pass.tiles * args.heads))),
      .block = dim3(kThreads),
      .shared = sizeof(Shared),
      .stream = stream};
  allow_shared(expand_attend_kernel, how.shared);
  launch(expand_attend_kernel, how, args, maps);
}

}  // namespace skiff::cuda
