// Reduces the results of items that several groups share, in the order of their positions. A warp
// takes a quarter of a query vector at a time: four neighbouring columns for each lane.
#include <cuda_bf16.h>

#include <cmath>

#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_shape.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

using namespace latent;

constexpr int kCombineWarps = 8, kQuarters = 4;

__device__ void combine(const LatentPlanArgs& p, const LatentItem& item, int row, int quarter) {
  const int lane = static_cast<int>(threadIdx.x) % 32, width = p.head->width;
  const int part = row / kLatentRows, row_of_part = row % kLatentRows;
  const int column = quarter * (kRank / kQuarters) + lane * 4;
  const auto part_at = [&](int i) {
    return part_of(p, (item.first_group + i) * width + part, i == 0);
  };
  float top = -INFINITY, sum = 0;
  float4 value = {};
  for (int base = 0; base < item.groups; base += 32) {
    const bool real = base + lane < item.groups;
    const Part* mine = part_at(real ? base + lane : 0);
    const float my_top = real ? __ldcg(&mine->top[row_of_part]) : -INFINITY;
    const float my_sum = real ? __ldcg(&mine->sum[row_of_part]) : 0;
    const float before = top;
    top = warp_max(fmaxf(top, my_top));
    const float floor = top == -INFINITY ? 0.0f : top;
    const float keep = exp2_fast(before - floor), my_keep = exp2_fast(my_top - floor);
    sum = sum * keep + my_sum * my_keep;
    value.x *= keep, value.y *= keep, value.z *= keep, value.w *= keep;
    const int count = min(32, item.groups - base);
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      const float worth = __shfl_sync(kAllLanes, my_keep, i);
      const float4 x =
          __ldcg(reinterpret_cast<const float4*>(&part_at(base + i)->o[row_of_part][column]));
      value.x += x.x * worth, value.y += x.y * worth;
      value.z += x.z * worth, value.w += x.w * worth;
    }
  }
  const float scale = 1 / warp_sum(sum);
  auto* out = static_cast<__nv_bfloat16*>(p.args.out) +
              int64_t{item.first + row} * p.args.out_stride + column;
  *reinterpret_cast<uint2*>(out) = {pack_bf16(value.x * scale, value.y * scale),
                                    pack_bf16(value.z * scale, value.w * scale)};
}

__global__ void __launch_bounds__(32 * kCombineWarps)
    combine_kernel(const __grid_constant__ LatentPlanArgs p) {
  wait_for_previous();
  let_next_start();
  const int rows = p.head->width * kLatentRows, units = p.head->cut * rows * kQuarters;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int unit = static_cast<int>(blockIdx.x) * kCombineWarps + warp; unit < units;
       unit += static_cast<int>(gridDim.x) * kCombineWarps) {
    const int quarter = unit % kQuarters, row = unit / kQuarters % rows;
    const LatentItem& item = p.items[p.cut[unit / kQuarters / rows]];
    if (row < item.count) combine(p, item, row, quarter);
  }
}

}  // namespace

void start_latent_combine(const LatentPlanArgs& p, cudaStream_t stream) {
  launch(combine_kernel,
         {.grid = dim3(static_cast<unsigned>(4 * p.blocks)),
          .block = dim3(32 * kCombineWarps),
          .stream = stream},
         p);
}

}  // namespace skiff::cuda
