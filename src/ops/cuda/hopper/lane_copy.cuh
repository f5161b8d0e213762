// ops/cuda/hopper/lane_copy.cuh -- copies of 16 bytes to shared memory that each lane counts for
// itself, without a barrier. PTX ISA, "cp.async".
#pragma once
#include <cstdint>

namespace skiff::cuda {

// Copies 16 bytes, which belong to the lane's present group of copies. Without a hint for the L2:
// where some lanes do not copy, ptxas 13.0 makes an illegal instruction of one.
__device__ __forceinline__ void copy_piece(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
// Ends the lane's present group of copies, which may be empty.
__device__ __forceinline__ void end_group_of_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Returns once all of the lane's groups but the last kGroups have arrived. Other lanes see what it
// copied behind a barrier.
template <int kGroups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace skiff::cuda
