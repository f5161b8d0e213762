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

// For few tokens: sorts the copies and gathers them in one kernel. A block reads a part of a
// token's row, and writes it for every copy, whose places it counts for itself.
constexpr int kSpreadCopies = 4096;  // all tokens together have at most so many
constexpr int kSpreadPieces = 2;     // a thread copies so many pieces of a row

struct Spread {
  Gather g;
  int32_t *order, *start;
  const int32_t* expert;  // [copies], aligned to 16 bytes
  int copies;
};

// Copies the experts of all copies to shared memory; those behind the last copy are nowhere.
__device__ void load_experts(int32_t* to, const Spread& s) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 4
  for (int i = 4 * thread; i < s.copies; i += 4 * kThreads) {
    int4 four = {-1, -1, -1, -1};
    if (i + 4 <= s.copies) {
      four = *reinterpret_cast<const int4*>(s.expert + i);
    } else {
      four.x = s.expert[i];
      if (i + 1 < s.copies) four.y = s.expert[i + 1];
      if (i + 2 < s.copies) four.z = s.expert[i + 2];
    }
    *reinterpret_cast<int4*>(to + i) = four;
  }
}

// Returns the place of a copy whose expert is here, in every lane of the warp: behind those of
// lower experts and the same expert's earlier ones.
__device__ int place_of(const int32_t* expert, int copies, int copy) {
  const auto mine = static_cast<unsigned>(expert[copy]);
  int before = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) % 32 * 4; i < copies; i += 32 * 4) {
    const int4 four = *reinterpret_cast<const int4*>(expert + i);
    before += static_cast<unsigned>(four.x) < mine + (i < copy);
    before += static_cast<unsigned>(four.y) < mine + (i + 1 < copy);
    before += static_cast<unsigned>(four.z) < mine + (i + 2 < copy);
    before += static_cast<unsigned>(four.w) < mine + (i + 3 < copy);
  }
  return warp_sum(before);
}

// Run by one block: fills `start`.
__device__ void count_experts(const Spread& s, const int32_t* expert) {
  __shared__ int count[kMaxExperts];
  const int thread = static_cast<int>(threadIdx.x), experts = s.g.experts;
  for (int e = thread; e < experts; e += kThreads) count[e] = 0;
  __syncthreads();
  for (int i = thread; i < s.copies; i += kThreads)
    if (expert[i] >= 0) atomicAdd(&count[expert[i]], 1);
  __syncthreads();
  if (thread >= 32) return;
  // Each lane has neighbouring experts, so that one prefix sum serves for all.
  const int each = (experts + 31) / 32, begin = min(experts, thread * each);
  const int end = min(experts, begin + each);
  int mine = 0;
  for (int e = begin; e < end; ++e) mine += count[e];
  int sum = warp_prefix_sum(mine, thread) - mine;
  for (int e = begin; e < end; ++e) {
    s.start[e] = sum;
    sum += count[e];
  }
  if (thread == 31) s.start[experts] = sum;
}

__global__ void __launch_bounds__(kThreads) spread_kernel(Spread s) {
  let_next_start();
  wait_for_previous();
  __shared__ __align__(16) int32_t expert[kSpreadCopies];
  __shared__ int place[kThreads];
  const Gather& g = s.g;
  load_experts(expert, s);
  if (blockIdx.x == 0) {
    if (blockIdx.y > 0) return;
    __syncthreads();
    count_experts(s, expert);
    __syncthreads();
    return make_jobs(g);
  }
  const int t = static_cast<int>(blockIdx.x) - 1, thread = static_cast<int>(threadIdx.x);
  const int pieces = static_cast<int>(g.row_bytes / 16);
  const int first = static_cast<int>(blockIdx.y) * kThreads * kSpreadPieces + thread;
  uint4 piece[kSpreadPieces];
#pragma unroll
  for (int k = 0; k < kSpreadPieces; ++k) {
    const int c = first + k * kThreads;
    if (c < pieces) piece[k] = reinterpret_cast<const uint4*>(g.x + t * g.x_stride_bytes)[c];
  }
  __syncthreads();
#pragma unroll 1
  for (int k = thread / 32; k < g.top_k; k += kThreads / 32) {
    const int copy = t * g.top_k + k;
    const int to = expert[copy] < 0 ? -1 : place_of(expert, s.copies, copy);
    if (thread % 32 != 0) continue;
    place[k] = to;
    if (blockIdx.y > 0 || to < 0) continue;
    g.position[copy] = to;
    s.order[to] = copy;
  }
  __syncthreads();
#pragma unroll 4
  for (int k = 0; k < g.top_k; ++k) {
    if (place[k] < 0) continue;
    auto* to = reinterpret_cast<uint4*>(g.to + place[k] * g.row_bytes);
#pragma unroll
    for (int a = 0; a < kSpreadPieces; ++a)
      if (const int c = first + a * kThreads; c < pieces) to[c] = piece[a];
  }
}

void start_spread(const Spread& s, cudaStream_t stream) {
  const int pieces = static_cast<int>(s.g.row_bytes / 16);
  constexpr int kEach = kThreads * kSpreadPieces;
  const dim3 grid(static_cast<unsigned>(1 + s.copies / s.g.top_k),
                  static_cast<unsigned>((pieces + kEach - 1) / kEach));
  launch(spread_kernel, {grid, kThreads, 0, stream}, s);
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

void permute(const Permutation& to, Tensor x, const Routing& routing, cudaStream_t stream,
             bool sorted) {
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
  const bool wide = is_aligned(g.x, g.x_stride_bytes) && is_aligned(g.to, g.row_bytes);
  const int64_t copies = routing.expert.elements();
  if (!sorted && wide && copies > 0 && copies <= kSpreadCopies && g.top_k <= kThreads) {
    return start_spread({.g = g,
                         .order = routing.order.as<int32_t>(),
                         .start = routing.expert_start.as<int32_t>(),
                         .expert = routing.expert.as<int32_t>(),
                         .copies = static_cast<int>(copies)},
                        stream);
  }
  if (!sorted) sort_copies(routing, stream);
  if (wide)
    start_gather<uint4>(g, copies, stream);
  else
    start_gather<uint16_t>(g, copies, stream);
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
