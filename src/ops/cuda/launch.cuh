// ops/cuda/launch.cuh -- starting kernels, and the two calls by which neighbours overlap.
//
// Every kernel here is launched with programmatic dependent launch (on Hopper and later): its
// blocks may start while the kernel before it drains. So every thread that reads or writes what
// another kernel touches calls wait_for_previous() first (weights, which nobody writes, may be
// fetched before it), and every kernel calls it somewhere, even if it needs nothing: the guarantee
// is handed on from kernel to kernel. CUDA programming guide, "Programmatic Dependent Launch and
// Synchronization".
//
// A small kernel calls let_next_start() first of all, so that the next one fetches its weights
// while this one still waits: the next then waits for this one, and this one ends only after it has
// waited itself. What lies before a kernel's wait may therefore run beside any kernel of the stream
// since the last that let its next start only after its own wait; a kernel that reads there what
// another wrote says which that must be (StreamedProducts::grouped, start_prefill's `beside`).
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

// Devices before Hopper know nothing of it: there, kernels follow each other.
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

// More than 48 KB of dynamic shared memory must be asked for once per kernel.
template <class... P>
void allow_shared(void (*kernel)(P...), size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "asking for shared memory");
}

// Returns once all kernels before this one in the stream are done and their writes are seen.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start once every block has said so or ended.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace skiff::cuda
