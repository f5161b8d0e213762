// ops/cuda/launch.cuh -- kernel launches, and the two calls by which successive kernels overlap.
//
// Every kernel here is launched with programmatic dependent launch (on Hopper and later): its
// blocks may start while the previous kernel drains. So every thread calls wait_for_previous()
// before it reads or writes memory that another kernel touches (weights, which no kernel writes,
// may be loaded earlier), and every kernel calls it somewhere, even if it needs nothing: only then
// does waiting for one kernel mean waiting for all kernels before it. CUDA programming guide,
// "Programmatic Dependent Launch and Synchronization".
//
// A small kernel calls let_next_start() first of all, so that the next one loads its weights while
// this one still waits. Code before a kernel's wait may therefore run beside every earlier kernel
// of the stream, back to the last one that triggered its successor only after its own wait. A
// kernel that reads another kernel's output there says which one that must be
// (StreamedProducts::grouped, start_prefill's `beside`).
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#include "ops/cuda/check.h"

namespace skiff::cuda {

struct Launch {
  dim3 grid, block;
  size_t shared = 0;  // bytes of dynamic shared memory
  cudaStream_t stream = nullptr;
  unsigned cluster = 1;  // blocks along x that share a cluster
};

// Devices before Hopper do not have it: there, kernels run one after the other.
inline bool kernels_overlap() {
  static const bool overlap = attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
  return overlap;
}

template <class... P, class... A>
void launch(void (*kernel)(P...), const Launch& how, A&&... args) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned n = 0;
  if (kernels_overlap()) {
    attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[n++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (how.cluster > 1) {
    attributes[n].id = cudaLaunchAttributeClusterDimension;
    attributes[n++].val.clusterDim = {how.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = how.grid;
  config.blockDim = how.block;
  config.dynamicSmemBytes = how.shared;
  config.stream = how.stream;
  config.attrs = attributes;
  config.numAttrs = n;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), "launching a kernel");
}

// A block gets 48 KB of shared memory without asking, for the variables that its kernel declares
// and the dynamic part together. Kernels with a dynamic part of any size declare at most 1 KB.
constexpr size_t kSharedUnasked = size_t{47} << 10;

// More dynamic shared memory than that must be allowed once per kernel.
template <class... P>
void allow_shared(void (*kernel)(P...), size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "asking for shared memory");
}

// Returns once all earlier kernels of the stream are complete and their writes are visible.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start once every block has called this or ended.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace skiff::cuda
