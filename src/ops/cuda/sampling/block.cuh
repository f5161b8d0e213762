// ops/cuda/sampling/block.cuh -- the order of logits, and reductions and prefix sums over the
// threads of a block. Results are the same in every thread and from run to run.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/warp.cuh"

namespace skiff::cuda {

constexpr int kThreads = 512;  // the default number of threads of a block
constexpr int kWarps = kThreads / 32;
constexpr float kNever = -__builtin_huge_valf();

// key() orders like its float: a > b where key(a) > key(b); both zeros have one key. sane() turns
// NaN into the logit of an impossible token.
__device__ __forceinline__ float sane(float x) { return x != x ? kNever : x; }
__device__ __forceinline__ uint32_t key(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Combines a value of each thread with an associative, commutative f.
template <int kN = kThreads, class T, class F>
__device__ T reduce(T x, F f) {
  constexpr int kWarps = kN / 32;
  __shared__ T partial[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = f(x, __shfl_xor_sync(kAllLanes, x, step));
  __syncthreads();  // all threads have read the last call's result
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  x = partial[lane % kWarps];
#pragma unroll
  for (int step = kWarps / 2; step > 0; step /= 2) x = f(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

template <int kN = kThreads, class T>
__device__ T sum(T x) {
  return reduce<kN>(x, [](T a, T b) { return a + b; });
}

// The sum of x over all threads before this one.
template <class T>
__device__ T sum_before(T x) {
  __shared__ T totals[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const T upto = warp_prefix_sum(x, lane);
  __syncthreads();
  if (lane == 31) totals[warp] = upto;
  __syncthreads();
  if (warp == 0) {
    const T total = lane < kWarps ? totals[lane] : T{};
    const T before = warp_prefix_sum(total, lane);
    if (lane < kWarps) totals[lane] = before - total;
  }
  __syncthreads();
  return totals[warp] + upto - x;
}

// The sum over a warp, where each x is below 2^50.
__device__ __forceinline__ uint64_t warp_sum_units(uint64_t x) {
  constexpr int kHalf = 25;
  const auto low = static_cast<uint32_t>(x & ((1u << kHalf) - 1));
  const auto high = static_cast<uint32_t>(x >> kHalf);
  return (uint64_t{__reduce_add_sync(kAllLanes, high)} << kHalf) +
         __reduce_add_sync(kAllLanes, low);
}

// Turns each x into its sum over the threads before this one, and total into the sum over all
// threads, in a fixed order of additions. Has one barrier; another must come before the next call.
template <int kThreads, class T, int kN>
__device__ __forceinline__ void sums_before(T (&x)[kN], T (&total)[kN]) {
  constexpr int kWarps = kThreads / 32;
  __shared__ T totals[kN][kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const T upto = warp_prefix_sum(x[n], lane);
    if (lane == 31) totals[n][warp] = upto;
    x[n] = __shfl_up_sync(kAllLanes, upto, 1);
    if (lane == 0) x[n] = 0;
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    total[n] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) x[n] += total[n];
      total[n] += totals[n][w];
    }
  }
}

// atomicAdd if `in`, else returns 0. Written in PTX, because the compiler would branch.
__device__ __forceinline__ uint32_t add_if(bool in, uint32_t& word, uint32_t n) {
  uint32_t before;
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&word));
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %3, 0; mov.u32 %0, 0; @p atom.shared.add.u32 %0, [%1], %2; }"
      : "=r"(before)
      : "r"(at), "r"(n), "r"(static_cast<uint32_t>(in))
      : "memory");
  return before;
}

// Returns a logit and its token as one number, by which the higher logit is greater, and of equal
// logits that of the lower token.
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
