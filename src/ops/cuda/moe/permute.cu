#include "ops/cuda/moe/permute.h"

#include <algorithm>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/moe/route.h"
#include "ops/cuda/pieces.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPieces = 4;  // pieces of rows that a thread of gather_kernel copies

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
  const int64_t first = int64_t{blockIdx.x - 1} * (kThreads * kPieces);
  const Pieces pieces(first, static_cast<int>(g.row_bytes / static_cast<int64_t>(sizeof(Piece))));
  const int rows = g.start[g.experts];
  Piece piece[kPieces];
  int64_t row[kPieces];
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const unsigned i = k * kThreads + threadIdx.x;
    row[k] = pieces.row_of(i);
    if (row[k] >= rows) continue;
    const int copy = g.order[row[k]], c = pieces.column_of(i);
    if (c == 0) g.position[copy] = static_cast<int32_t>(row[k]);
    piece[k] = reinterpret_cast<const Piece*>(g.x + copy / g.top_k * g.x_stride_bytes)[c];
  }
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const unsigned i = k * kThreads + threadIdx.x;
    if (row[k] < rows) reinterpret_cast<Piece*>(g.to)[first + i] = piece[k];
  }
}

template <class Piece>
void start_gather(const Gather& g, int64_t copies, cudaStream_t stream) {
  const int64_t pieces = copies * (g.row_bytes / static_cast<int64_t>(sizeof(Piece)));
  constexpr int64_t kEach = kThreads * kPieces;
  const Launch how = {static_cast<unsigned>(1 + (pieces + kEach - 1) / kEach), kThreads, 0, stream};
  launch(gather_kernel<Piece>, how, g);
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
  if (is_aligned(g.x, g.x_stride_bytes) && is_aligned(g.to, g.row_bytes))
    start_gather<uint4>(g, routing.expert.elements(), stream);
  else
    start_gather<uint16_t>(g, routing.expert.elements(), stream);
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

}  // namespace skiff::cuda
