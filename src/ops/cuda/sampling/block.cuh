// ops/cuda/sampling/block.cuh -- the order of logits, and sums over the threads of a block. Results
// are the same in every thread and from run to run.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace skiff::cuda {

constexpr int kThreads = 512;  // of every block here
constexpr int kWarps = kThreads / 32;
constexpr float kNever = -__builtin_huge_valf();

// Floats in order: a > b where key(a) > key(b). NaN, which has no place in an order, counts as
// impossible; the two zeros are one value.
__device__ __forceinline__ float sane(float x) { return x != x ? kNever : x; }
__device__ __forceinline__ uint32_t key(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Combines a value of each thread with an associative, commutative f.
template <class T, class F>
__device__ T reduce(T x, F f) {
  __shared__ T partial[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  __syncthreads();  // whoever reads the last call's result is done
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  x = partial[lane % kWarps];
#pragma unroll
  for (int step = kWarps / 2; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

template <class T>
__device__ T sum(T x) {
  return reduce(x, [](T a, T b) { return a + b; });
}

// The sum of x over all threads before this one.
template <class T>
__device__ T sum_before(T x) {
  __shared__ T totals[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  T upto = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_up_sync(~0u, upto, step);
    if (lane >= step) upto += other;
  }
  __syncthreads();
  if (lane == 31) totals[warp] = upto;
  __syncthreads();
  if (warp == 0) {
    const T total = lane < kWarps ? totals[lane] : T{};
    T before = total;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const T other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    if (lane < kWarps) totals[lane] = before - total;
  }
  __syncthreads();
  return totals[warp] + upto - x;
}

// The best logit and the first token that has it, as one number that orders like them.
__device__ __forceinline__ uint64_t ranked(float x, int id) {
  return uint64_t{key(x)} << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
__device__ __forceinline__ float logit_of(uint64_t rank) {
  const auto k = static_cast<uint32_t>(rank >> 32);
  return __uint_as_float(k & 0x80000000u ? k & 0x7fffffffu : ~k);
}
__device__ __forceinline__ int id_of(uint64_t rank) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(rank));
}

}  // namespace skiff::cuda
