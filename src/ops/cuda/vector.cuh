// ops/cuda/vector.cuh -- elements of rows in memory: their conversion to and from f32, and loads
// and stores of several elements at a time.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace skiff::cuda {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Stores one element, rounded to nearest.
__device__ __forceinline__ void put(float* to, float value) { *to = value; }
__device__ __forceinline__ void put(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}
// Stores element `at` of an array that is f32 or bf16.
__device__ __forceinline__ void put(void* to, bool f32, int64_t at, float value) {
  if (f32)
    static_cast<float*>(to)[at] = value;
  else
    static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(value);
}

// N neighbouring elements, aligned to their size (one access moves at most 16 bytes).
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

template <int N, class T>
__device__ __forceinline__ void load(float (&to)[N], const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.at[i]);
}

template <int N, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

}  // namespace skiff::cuda
