// ops/cuda/hopper/copy.cuh -- TMA loads: boxes of tensors are copied to shared memory, and their
// bytes are counted at a barrier (barrier_expect). PTX ISA, "cp.async.bulk",
// "cp.async.bulk.tensor".
#pragma once
#include <cuda.h>

#include "ops/cuda/hopper/barrier.cuh"

namespace skiff::cuda {

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}
// Loads the box of a paged cache at (dim, head, position in page, page).
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                         int dim, int head, int position, int page) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(dim), "r"(head), "r"(position),
      "r"(page)
      : "memory");
}

// The eviction priority of a line in the L2 once it has been read.
enum class Keep : uint64_t { kFirstToGo = 0x12f0000000000000, kNormal = 0x1000000000000000 };

// Copies contiguous memory; addresses and size are multiples of 16 bytes.
__device__ __forceinline__ void copy_bytes(uint32_t to, const void* from, int bytes,
                                           uint32_t barrier, Keep keep) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier),
      "l"(static_cast<uint64_t>(keep))
      : "memory");
}

__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap& map, uint32_t barrier,
                                          int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap& map, uint32_t barrier,
                                          int x, int y, int z, int u, int v, Keep keep) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v), "r"(barrier),
      "l"(static_cast<uint64_t>(keep))
      : "memory");
}

}  // namespace skiff::cuda
