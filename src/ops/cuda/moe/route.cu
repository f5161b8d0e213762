#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/moe/route.h"

namespace skiff::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = 4;  // tokens of a block of the first kernel

struct Choice {
  int32_t* expert;
  float* weight;
  const float *logits, *bias;
  int64_t logits_stride;
  int tokens, experts, top_k;
  bool renorm;
  const int32_t* live;
};

__device__ float warp_max(float v) {
  for (int m = 16; m; m /= 2) v = fmaxf(v, __shfl_xor_sync(kAll, v, m));
  return v;
}
__device__ float warp_sum(float v) {
  for (int m = 16; m; m /= 2) v += __shfl_xor_sync(kAll, v, m);
  return v;
}
__device__ uint64_t warp_max(uint64_t v) {
  for (int m = 16; m; m /= 2) v = max(v, __shfl_xor_sync(kAll, v, m));
  return v;
}

// Greater for a greater score, then for a lower expert; above 0, and least for no number at all.
__device__ uint64_t rank_of(float score, int expert) {
  const unsigned b = __float_as_uint(score);
  const unsigned order = isnan(score) ? 1u : (b & 0x80000000u) ? ~b : b | 0x80000000u;
  return uint64_t{order} << 32 | (kAll - static_cast<unsigned>(expert));
}

// One warp a token; lane l holds experts l, l + 32, ... kSlots of them.
template <int kSlots>
__global__ void __launch_bounds__(kWarps * 32) choose_kernel(Choice c) {
  wait_for_previous();
  let_next_start();
  const int t = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (t >= c.tokens) return;
  int32_t* expert = c.expert + int64_t{t} * c.top_k;
  float* weight = c.weight + int64_t{t} * c.top_k;
  if (c.live && t >= *c.live) {
    for (int k = lane; k < c.top_k; k += 32) expert[k] = -1, weight[k] = 0;
    return;
  }
  float p[kSlots];
  float best = -INFINITY, total = 0;
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int e = lane + 32 * i;
    p[i] = e < c.experts ? c.logits[t * c.logits_stride + e] : -INFINITY;
    best = fmaxf(best, p[i]);
  }
  best = warp_max(best);
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    p[i] = lane + 32 * i < c.experts ? expf(p[i] - best) : 0.0f;
    total += p[i];
  }
  total = warp_sum(total);
  uint64_t rank[kSlots];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int e = lane + 32 * i;
    p[i] /= total;
    rank[i] = e < c.experts ? rank_of(c.bias ? p[i] + c.bias[e] : p[i], e) : 0;
  }
  float sum = 0;
  for (int k = 0; k < c.top_k; ++k) {
    uint64_t top = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) top = max(top, rank[i]);
    top = warp_max(top);
    float mine = 0;
    bool owner = false;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (rank[i] != top) continue;
      rank[i] = 0;
      mine = p[i];
      owner = true;
    }
    if (owner) {
      expert[k] = static_cast<int32_t>(kAll - static_cast<unsigned>(top));
      weight[k] = mine;
    }
    sum += __shfl_sync(kAll, mine, __ffs(__ballot_sync(kAll, owner)) - 1);
  }
  if (!c.renorm) return;
  __syncwarp();
  for (int k = lane; k < c.top_k; k += 32) weight[k] /= fmaxf(sum, 1e-12f);
}

struct Sums {
  int less, equal;
};

// Sums over the threads before this one (equal) and over all (less, equal), in one pass.
__device__ Sums block_scan(Sums v, Sums* shared, Sums* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  int before = v.equal;
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(kAll, before, d);
    if (lane >= d) before += other;
  }
  int less = v.less;
  for (int m = 16; m; m /= 2) less += __shfl_xor_sync(kAll, less, m);
  if (lane == 31) shared[warp] = {less, before};
  __syncthreads();
  *total = {0, 0};
  int earlier = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) earlier += shared[w].equal;
    total->less += shared[w].less;
    total->equal += shared[w].equal;
  }
  return {total->less, earlier + before - v.equal};
}

// Block e finds the copies of expert e: each thread looks at its own run of `run` copies, so the
// order within an expert is that of the copies, and where the expert starts is the number of
// copies of lower experts.
__global__ void sort_kernel(int32_t* order, int32_t* start, const int32_t* expert, int copies,
                            int run) {
  wait_for_previous();
  let_next_start();
  __shared__ Sums shared[32];
  const unsigned e = blockIdx.x;
  const int begin = min(copies, static_cast<int>(threadIdx.x) * run), end = min(copies, begin + run);
  Sums mine = {0, 0}, total;
  for (int i = begin; i < end; ++i) {
    const unsigned id = static_cast<unsigned>(expert[i]);  // -1 is greater than every expert
    mine.less += id < e;
    mine.equal += id == e;
  }
  const Sums before = block_scan(mine, shared, &total);
  if (threadIdx.x == 0) {
    start[e] = total.less;
    if (e + 1 == gridDim.x) start[e + 1] = total.less + total.equal;
  }
  if (mine.equal == 0) return;
  int at = before.less + before.equal;
  for (int i = begin; i < end; ++i) {
    if (static_cast<unsigned>(expert[i]) == e) order[at++] = i;
  }
}

}  // namespace

void route(const Routing& routing, Tensor logits, Tensor bias, const Router& router,
           const int32_t* live, cudaStream_t stream) {
  SKIFF_CHECK(router.experts >= 1 && router.experts <= kMostExperts, "{} experts; at most {}",
              router.experts, kMostExperts);
  SKIFF_CHECK(router.top_k >= 1 && router.top_k <= router.experts, "top_k {} of {} experts",
              router.top_k, router.experts);
  SKIFF_CHECK_EQ(logits.cols(), router.experts);
  const int tokens = static_cast<int>(logits.rows()), copies = tokens * router.top_k;
  const Choice c = {.expert = routing.expert.as<int32_t>(),
                    .weight = routing.weight.as<float>(),
                    .logits = logits.as<float>(),
                    .bias = bias ? bias.as<float>() : nullptr,
                    .logits_stride = logits.row_stride,
                    .tokens = tokens,
                    .experts = router.experts,
                    .top_k = router.top_k,
                    .renorm = router.renorm,
                    .live = live};
  const Launch how = {(tokens + kWarps - 1) / kWarps, kWarps * 32, 0, stream};
  if (tokens > 0) {
    if (router.experts <= 64)
      launch(choose_kernel<2>, how, c);
    else if (router.experts <= 128)
      launch(choose_kernel<4>, how, c);
    else
      launch(choose_kernel<kMostExperts / 32>, how, c);
  }
  const int threads = copies <= 256 ? 128 : copies <= 4096 ? 256 : 1024;
  launch(sort_kernel, {router.experts, threads, 0, stream}, routing.order.as<int32_t>(),
         routing.expert_start.as<int32_t>(), routing.expert.as<int32_t>(), copies,
         (copies + threads - 1) / threads);
}

}  // namespace skiff::cuda
