#include "ops/cuda/moe/permute.h"

#include <algorithm>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/moe/route.h"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 8;  // copies of a token that combine_kernel loads together

struct Gather {
  char* to;
  const char* x;
  int64_t row_bytes, x_stride_bytes;
  int32_t* position;
  const int32_t *order, *start;
  Job* jobs;
  int32_t* job_count;
  int experts, top_k, rows_per_job;
};

// Run by one block: thread e counts the jobs of expert e, and a prefix sum gives their places.
__device__ void make_jobs(const Gather& g) {
  __shared__ int before[kMaxExperts];
  for (int e = threadIdx.x; e < g.experts; e += kThreads)
    before[e] = (g.start[e + 1] - g.start[e] + g.rows_per_job - 1) / g.rows_per_job;
  __syncthreads();
  if (threadIdx.x < 32) {
    int sum = 0;
    for (int base = 0; base < g.experts; base += 32) {
      const int e = base + static_cast<int>(threadIdx.x), mine = e < g.experts ? before[e] : 0;
      const int upto = warp_prefix_sum(mine, static_cast<int>(threadIdx.x));
      if (e < g.experts) before[e] = sum + upto - mine;
      sum += __shfl_sync(kAllLanes, upto, 31);
    }
    if (threadIdx.x == 0) *g.job_count = sum;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < g.experts; e += kThreads) {
    const int end = g.start[e + 1];
    Job* job = g.jobs + before[e];
    for (int first = g.start[e]; first < end; first += g.rows_per_job)
      *job++ = {e, first, min(g.rows_per_job, end - first), 0};
  }
}

template <class Piece>
__global__ void __launch_bounds__(kThreads) gather_kernel(Gather g) {
  let_next_start();
  wait_for_previous();
  if (blockIdx.x == 0) return make_jobs(g);
  const int i = static_cast<int>(blockIdx.x) - 1;
  if (i >= g.start[g.experts]) return;
  const int copy = g.order[i];
  if (threadIdx.x == 0) g.position[copy] = i;
  const auto* from = reinterpret_cast<const Piece*>(g.x + copy / g.top_k * g.x_stride_bytes);
  auto* to = reinterpret_cast<Piece*>(g.to + i * g.row_bytes);
  const int pieces = static_cast<int>(g.row_bytes / static_cast<int64_t>(sizeof(Piece)));
  for (int c = threadIdx.x; c < pieces; c += kThreads) to[c] = from[c];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gate_kernel(T* middle, const float* gate_up, int width, Act act) {
  let_next_start();
  wait_for_previous();
  const float* row = gate_up + int64_t{blockIdx.x} * 2 * width;
  for (int i = threadIdx.x; i < width; i += kThreads)
    put(middle + int64_t{blockIdx.x} * width + i, activate(row[i], act) * row[width + i]);
}

struct Combine {
  void* out;
  int64_t out_stride;
  const float *outer, *weight;
  const int32_t *expert, *position;
  int hidden, top_k;
};

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) combine_kernel(Combine c) {
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  const int32_t* expert = c.expert + t * c.top_k;
  for (int at = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kWide; at < c.hidden;
       at += static_cast<int>(gridDim.y) * kThreads * kWide) {
    float sum[kWide] = {};
    for (int first = 0; first < c.top_k; first += kAtOnce) {
      // All loads are issued before the first result is used.
      float w[kAtOnce], v[kAtOnce][kWide] = {};
      int from[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t copy = t * c.top_k + first + k;
        const bool counts = first + k < c.top_k && expert[first + k] >= 0;
        w[k] = counts ? c.weight[copy] : 0.0f;
        from[k] = !counts ? -1 : c.position ? c.position[copy] : static_cast<int>(copy);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (from[k] < 0) continue;
        const float* row = c.outer + int64_t{from[k]} * c.hidden + at;
        if constexpr (kWide == 4)
          *reinterpret_cast<float4*>(v[k]) = *reinterpret_cast<const float4*>(row);
        else
          v[k][0] = row[0];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
#pragma unroll
        for (int i = 0; i < kWide; ++i) sum[i] = fmaf(w[k], v[k][i], sum[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kWide; ++i) put(static_cast<T*>(c.out) + t * c.out_stride + at + i, sum[i]);
  }
}

}  // namespace

int plan_jobs(int copies, int experts, int rows_per_job) {
  return std::min(copies, experts) + copies / rows_per_job;
}

void permute(const Permutation& to, Tensor x, const Routing& routing, cudaStream_t stream) {
  SKIFF_CHECK(to.gathered.dtype == x.dtype && to.gathered.contiguous());
  const auto element = static_cast<int64_t>(bytes(x.dtype));
  const Gather g = {.to = static_cast<char*>(to.gathered.data),
                    .x = static_cast<const char*>(x.data),
                    .row_bytes = x.cols() * element,
                    .x_stride_bytes = x.row_stride * element,
                    .position = to.position,
                    .order = routing.order.as<int32_t>(),
                    .start = routing.expert_start.as<int32_t>(),
                    .jobs = to.jobs,
                    .job_count = to.job_count,
                    .experts = static_cast<int>(routing.expert_start.elements()) - 1,
                    .top_k = static_cast<int>(routing.expert.cols()),
                    .rows_per_job = to.rows_per_job};
  SKIFF_CHECK(g.experts <= kMaxExperts, "{} experts; at most {}", g.experts, kMaxExperts);
  const Launch how = {static_cast<unsigned>(1 + routing.expert.elements()), kThreads, 0, stream};
  if (is_aligned(g.x, g.x_stride_bytes) && is_aligned(g.to, g.row_bytes))
    launch(gather_kernel<uint4>, how, g);
  else
    launch(gather_kernel<uint16_t>, how, g);
}

void gate_copies(Tensor middle, Tensor gate_up, Act act, cudaStream_t stream) {
  if (middle.rows() == 0) return;
  SKIFF_CHECK(middle.contiguous() && gate_up.contiguous());
  const Launch how = {static_cast<unsigned>(middle.rows()), kThreads, 0, stream};
  const int width = static_cast<int>(middle.cols());
  if (middle.dtype == DType::kF32)
    launch(gate_kernel<float>, how, middle.as<float>(), gate_up.as<float>(), width, act);
  else
    launch(gate_kernel<__nv_bfloat16>, how, static_cast<__nv_bfloat16*>(middle.data),
           gate_up.as<float>(), width, act);
}

void combine(Tensor out, Tensor outer, const int32_t* position, const Routing& routing,
             cudaStream_t stream) {
  if (out.rows() == 0) return;
  SKIFF_CHECK(outer.contiguous());
  const Combine c = {.out = out.data,
                     .out_stride = out.row_stride,
                     .outer = outer.as<float>(),
                     .weight = routing.weight.as<float>(),
                     .expert = routing.expert.as<int32_t>(),
                     .position = position,
                     .hidden = static_cast<int>(out.cols()),
                     .top_k = static_cast<int>(routing.expert.cols())};
  const bool wide = c.hidden % 4 == 0 && is_aligned(c.outer);
  const int pieces = (c.hidden + kThreads * (wide ? 4 : 1) - 1) / (kThreads * (wide ? 4 : 1));
  const Launch how = {
      {static_cast<unsigned>(out.rows()), static_cast<unsigned>(pieces)}, kThreads, 0, stream};
  if (out.dtype == DType::kF32)
    launch(wide ? combine_kernel<float, 4> : combine_kernel<float, 1>, how, c);
  else
    launch(wide ? combine_kernel<__nv_bfloat16, 4> : combine_kernel<__nv_bfloat16, 1>, how, c);
}

}  // namespace skiff::cuda
