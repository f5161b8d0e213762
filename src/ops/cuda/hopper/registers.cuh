// ops/cuda/hopper/registers.cuh -- registers that one warpgroup gives to another.
#pragma once

namespace skiff::cuda {

// These set how many registers each thread of the warpgroup has. PTX ISA, "setmaxnreg".
template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace skiff::cuda
