// ops/cuda/sampling/block.cuh -- what a block of threads does with one row of logits. Results are
// the same in every thread and from run to run.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace skiff::cuda {

constexpr int kThreads = 1024;  // of every block here
constexpr float kNever = -__builtin_huge_valf();

// Floats in order: a > b where key(a) > key(b). NaN, which has no place in an order, counts as
// impossible; the two zeros are one value.
__device__ __forceinline__ float sane(float x) { return x != x ? kNever : x; }
__device__ __forceinline__ uint32_t key(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// f(id, logit) for all tokens, four loads ahead of their use.
template <class F>
__device__ __forceinline__ void each_logit(const float* row, int vocab, F f) {
  const int t = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(reinterpret_cast<uintptr_t>(row) / 4 % 4);
  const int skip = head == 0 ? 0 : min(4 - head, vocab);  // to the first aligned vector
  if (t < skip) f(t, sane(row[t]));
  const auto* vectors = reinterpret_cast<const float4*>(row + skip);
  const int n = (vocab - skip) / 4;
  for (int i = t; i < n; i += 2 * kThreads) {
    const bool second = i + kThreads < n;
    const float4 a = vectors[i];
    const float4 b = second ? vectors[i + kThreads] : float4{};
    const int id = skip + 4 * i;
    f(id, sane(a.x));
    f(id + 1, sane(a.y));
    f(id + 2, sane(a.z));
    f(id + 3, sane(a.w));
    if (!second) continue;
    const int other = id + 4 * kThreads;
    f(other, sane(b.x));
    f(other + 1, sane(b.y));
    f(other + 2, sane(b.z));
    f(other + 3, sane(b.w));
  }
  const int rest = skip + 4 * n + t;
  if (rest < vocab) f(rest, sane(row[rest]));
}

// Combines a value of each thread with an associative, commutative f.
template <class T, class F>
__device__ T reduce(T x, F f) {
  __shared__ T partial[kThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  __syncthreads();  // whoever reads the last call's result is done
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  x = partial[lane];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

template <class T>
__device__ T sum(T x) {
  return reduce(x, [](T a, T b) { return a + b; });
}

// The sum of x over all threads before this one.
template <class T>
__device__ T sum_before(T x) {
  __shared__ T totals[kThreads / 32];
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
    T total = totals[lane];
    T before = total;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const T other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    totals[lane] = before - total;
  }
  __syncthreads();
  return totals[warp] + upto - x;
}

// The best logit and the first token that has it, as one number that orders like them.
__device__ __forceinline__ uint64_t ranked(float x, int id) {
  return uint64_t{key(x)} << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
__device__ __forceinline__ int id_of(uint64_t rank) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(rank));
}

__device__ inline uint64_t best_of(const float* row, int vocab) {
  uint64_t best = 0;
  each_logit(row, vocab, [&](int id, float x) { best = max(best, ranked(x, id)); });
  return reduce(best, [](uint64_t a, uint64_t b) { return max(a, b); });
}

}  // namespace skiff::cuda
