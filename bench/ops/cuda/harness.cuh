// bench/ops/cuda/harness.cuh -- what checks and timings of device products share: tensors of random
// numbers, references in double, medians of events.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "ops/cuda/check.h"
#include "tensor/tensor.h"

namespace skiff::cuda::bench {

__device__ inline double value(const void* p, bool f32, int64_t i) {
  return f32 ? static_cast<const float*>(p)[i]
             : __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
}

// Uniform in (-scale, scale).
static __global__ void fill_kernel(void* p, bool f32, int64_t n, uint64_t seed, float scale) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t h = (static_cast<uint64_t>(i) + seed * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    h ^= h >> 31;
    h *= 0x94d049bb133111eb;
    const float v = (static_cast<float>(h >> 40) * 0x1p-23f - 1) * scale;
    if (f32)
      static_cast<float*>(p)[i] = v;
    else
      static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(v);
  }
}

inline Tensor make(DType dtype, std::initializer_list<int64_t> shape, int64_t gap = 0) {
  Tensor t;
  int i = 0;
  for (int64_t d : shape) t.dim[static_cast<size_t>(i++)] = d;
  t.dtype = dtype;
  t.device = {Device::kCuda, 0};
  t.row_stride = t.cols() + gap;
  check(cudaMalloc(&t.data, std::max<size_t>(
                                256, static_cast<size_t>(t.rows() * t.row_stride) * bytes(dtype))),
        "allocating");
  check(cudaMemset(t.data, 0xff, static_cast<size_t>(t.rows() * t.row_stride) * bytes(dtype)),
        "poisoning");
  return t;
}
inline void poison(const Tensor& t) {
  check(cudaMemset(t.data, 0xff, static_cast<size_t>(t.rows() * t.row_stride) * bytes(t.dtype)),
        "poisoning");
}
inline void fill(const Tensor& t, uint64_t seed, float scale = 1) {
  fill_kernel<<<1024, 256>>>(t.data, t.dtype == DType::kF32, t.rows() * t.row_stride, seed, scale);
  check(cudaGetLastError(), "filling");
}
inline Tensor random(DType dtype, std::initializer_list<int64_t> shape, uint64_t seed,
                     float scale = 1, int64_t gap = 0) {
  const Tensor t = make(dtype, shape, gap);
  fill(t, seed, scale);
  return t;
}
template <class T>
std::vector<T> host(const void* p, int64_t n) {
  std::vector<T> v(static_cast<size_t>(n));
  check(cudaMemcpy(v.data(), p, v.size() * sizeof(T), cudaMemcpyDeviceToHost), "fetching");
  return v;
}

// Median over runs of f(i), in microseconds.
inline double median_us(const std::function<void(int)>& f, cudaStream_t stream, int runs = 11) {
  cudaEvent_t a, b;
  check(cudaEventCreate(&a), "timing");
  check(cudaEventCreate(&b), "timing");
  std::vector<float> t;
  for (int i = 0; i < runs + 2; ++i) {
    check(cudaEventRecord(a, stream), "timing");
    f(i);
    check(cudaEventRecord(b, stream), "timing");
    check(cudaEventSynchronize(b), "timing");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, a, b), "timing");
    if (i >= 2) t.push_back(ms);
  }
  std::sort(t.begin(), t.end());
  return 1e3 * t[t.size() / 2];
}

// f's work as a graph, replayed.
inline double graph_us(const std::function<void()>& f, cudaStream_t stream, int runs = 7) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  f();
  check(cudaStreamEndCapture(stream, &graph), "capturing");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiating");
  const double us =
      median_us([&](int) { check(cudaGraphLaunch(exec, stream), "launching"); }, stream, runs);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return us;
}

// What main() returns for run(arguments...): its status, or 1 behind what it has thrown.
template <class... A>
int status_of(int (*run)(A...), A... arguments) {
  try {
    return run(arguments...);
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

}  // namespace skiff::cuda::bench
