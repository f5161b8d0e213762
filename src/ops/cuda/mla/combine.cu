// Reduces the results of items that several groups share, in the order of their positions. A warp
// takes a part of a query vector at a time: N neighbouring columns for each lane.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_shape.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

using namespace latent;

constexpr int kCombineWarps = 4;

template <int N>
__device__ void combine(const LatentPlanArgs& p, const LatentItem& item, int width, int row,
                        int first_column) {
  using Columns = std::conditional_t<N == 4, float4, float2>;
  constexpr int kAhead = 32 / N;  // results that are on their way at a time
  const int lane = static_cast<int>(threadIdx.x) % 32, column = first_column + lane * N;
  const int part = row / kLatentRows, row_of_part = row % kLatentRows;
  const Part* parts = part_of(p, item.first_group * width + part, false);
  const auto part_at = [&](int i) { return parts + 2 * width * i + (i == 0); };
  float top = -INFINITY, sum = 0, my_keep = 0, value[N] = {};
  Columns x[kAhead];
  const auto fetch = [&](int first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i >= item.groups - first) break;
      x[i] = __ldcg(reinterpret_cast<const Columns*>(part_at(first + i)->o[row_of_part] + column));
    }
  };
  const auto add = [&](int first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i >= item.groups - first) break;
      const float worth = __shfl_sync(kAllLanes, my_keep, (first + i) % 32);
#pragma unroll
      for (int c = 0; c < N; ++c) value[c] += reinterpret_cast<const float*>(&x[i])[c] * worth;
    }
  };
  for (int base = 0; base < item.groups; base += 32) {
    fetch(base);
    const bool real = base + lane < item.groups;
    const Part* mine = part_at(real ? base + lane : 0);
    const float my_top = real ? __ldcg(&mine->top[row_of_part]) : -INFINITY;
    const float my_sum = real ? __ldcg(&mine->sum[row_of_part]) : 0;
    const float before = top;
    top = warp_max(fmaxf(top, my_top));
    const float floor = top == -INFINITY ? 0.0f : top;
    const float keep = exp2_fast(before - floor);
    my_keep = exp2_fast(my_top - floor);
    sum = sum * keep + my_sum * my_keep;
#pragma unroll
    for (float& v : value) v *= keep;
    add(base);
    for (int i = base + kAhead; i < min(base + 32, item.groups); i += kAhead) fetch(i), add(i);
  }
  const float scale = 1 / warp_sum(sum);
#pragma unroll
  for (float& v : value) v *= scale;
  store<N>(static_cast<__nv_bfloat16*>(p.args.out) + int64_t{item.first + row} * p.args.out_stride +
               column,
           value);
}

// The plan is visible before the wait, as it is to the kernel before.
template <int N>
__global__ void __launch_bounds__(32 * kCombineWarps, 7)
    combine_kernel(const __grid_constant__ LatentPlanArgs p) {
  constexpr int kShare = 32 * N, kShares = kRank / kShare;  // A warp has a share of the columns.
  let_next_start();
  const int width = p.head->width, rows = p.head->widest, units = p.head->cut * rows * kShares;
  const int step = static_cast<int>(gridDim.x) * kCombineWarps;
  int unit = static_cast<int>(blockIdx.x) * kCombineWarps + static_cast<int>(threadIdx.x) / 32;
  LatentItem item = {};
  const auto look_up = [&] {
    if (unit < units) item = p.items[p.cut[unit / kShares / rows]];
  };
  look_up();
  wait_for_previous();
  for (; unit < units; unit += step, look_up()) {
    const int row = unit / kShares % rows;
    if (row < item.count) combine<N>(p, item, width, row, unit % kShares * kShare);
  }
}

template <int N>
void start(const LatentPlanArgs& p, int vectors, cudaStream_t stream) {
  const int blocks = std::min(8 * p.blocks, vectors * (kRank / 32 / N) / kCombineWarps);
  launch(combine_kernel<N>,
         {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(32 * kCombineWarps),
          .stream = stream},
         p);
}

}  // namespace

// With few vectors, all results of a context in many parts are loaded at once; with many, more
// vectors are on their way at a time.
void start_latent_combine(const LatentPlanArgs& p, cudaStream_t stream) {
  const int vectors = p.args.rows.num_tokens * p.args.heads;
  vectors <= 4 * p.blocks ? start<2>(p, vectors, stream) : start<4>(p, vectors, stream);
}

}  // namespace skiff::cuda
