// ops/cuda/hopper/cluster.cuh -- the blocks of a cluster, and their shared memory. Devices without
// clusters have one block in each. CUDA programming guide, "Thread Block Clusters" and "Distributed
// Shared Memory".
#pragma once
#include <cooperative_groups.h>

namespace skiff::cuda {

// The rank of this block in its cluster.
__device__ __forceinline__ int block_rank() {
#if __CUDA_ARCH__ >= 900
  int n;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
  return n;
#else
  return 0;
#endif
}
// A peer's shared memory may be written only once the peer runs: all blocks arrive at the start.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
// The same object in the shared memory of another block of the cluster.
template <class T>
__device__ __forceinline__ T& of_peer(T& mine, int rank) {
#if __CUDA_ARCH__ >= 900
  return *cooperative_groups::this_cluster().map_shared_rank(&mine, static_cast<unsigned>(rank));
#else
  return mine;
#endif
}

}  // namespace skiff::cuda
