// ops/cuda/quant/shared_loads.cuh -- loads of packed weights (atoms.h) from shared memory.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/quant/atoms.h"

namespace skiff::cuda::atoms {

__device__ __forceinline__ uint4 load_shared16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ float load_shared_float(uint32_t at) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
  return v;
}
__device__ __forceinline__ unsigned load_shared_u16(uint32_t at) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
  return v;
}
__device__ __forceinline__ unsigned load_shared_byte(uint32_t at) {
  unsigned v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}

// The scale of row `row` of an atom for a group of columns. `at`: where the atom's scales lie.
__device__ __forceinline__ float load_scale(AtomScale kind, uint32_t at, int group, int row) {
  const int index = group * kAtomHeight + row;
  if (kind == AtomScale::kRowBF16) return __uint_as_float(load_shared_u16(at + 2 * index) << 16);
  if (kind == AtomScale::kRowF16)
    return __half2float(
        __ushort_as_half(static_cast<unsigned short>(load_shared_u16(at + 2 * index))));
  return load_shared_float(at + 4 * (kind == AtomScale::kAtomF32 ? group : index));
}

}  // namespace skiff::cuda::atoms
