// heads_by_rows: with a few rows each matrix is read once, and all else is latency. So a warp has 4
// KB of a matrix in registers before griddepcontrol.wait, since no kernel writes weights, and only
// rows of x are to come.
#include <cuda_bf16.h>

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/head_inputs.h"
#include "ops/cuda/mla/heads.h"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kMostRows = 4, kWarps = 8;
constexpr int kLoads = 8;  // 16-byte loads of a lane
constexpr int kEach = 8;   // elements of a load

__device__ __forceinline__ float dot(const uint4& a, const uint4& b, float sum) {
  const uint32_t u[4] = {a.x, a.y, a.z, a.w}, v[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(low_bf16(u[i]), low_bf16(v[i]), sum);
    sum = fmaf(high_bf16(u[i]), high_bf16(v[i]), sum);
  }
  return sum;
}

// The lanes of a warp share one feature of kIn inputs, or several.
template <int kIn>
struct Share {
  static constexpr int kLanes = kIn / kEach < 32 ? kIn / kEach : 32;
  static constexpr int kPieces = kIn / kEach / kLanes;  // loads of a feature
  static constexpr int kSums = kLoads / kPieces;        // features of a lane
  static constexpr int kFeatures = kSums * 32 / kLanes;
};

template <int kIn>
__global__ void __launch_bounds__(32 * kWarps)
    head_rows_kernel(const __grid_constant__ HeadArgs p) {
  using S = Share<kIn>;
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int task = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int per_head = p.features / S::kFeatures;
  const int head = task / per_head, feature0 = task % per_head * S::kFeatures;
  if (head >= p.heads) return wait_for_previous();
  uint4 w[kLoads];
  const auto* from = reinterpret_cast<const uint4*>(
      p.w + (int64_t{head} * p.features + feature0) * kIn + lane * kEach);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) w[i] = __ldcs(from + i * 32);
  wait_for_previous();
#pragma unroll 1
  for (int r = 0; r < p.rows; ++r) {
    const int64_t vector = int64_t{r} * p.heads + head;
    const auto* row =
        reinterpret_cast<const uint4*>(p.x + vector * p.x_stride + lane % S::kLanes * kEach);
    uint4 x[S::kPieces];
#pragma unroll
    for (int i = 0; i < S::kPieces; ++i) x[i] = __ldcg(row + i * 32);
    float mine = 0;  // the sum that this lane stores
#pragma unroll
    for (int i = 0; i < S::kSums; ++i) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < S::kPieces; ++j) sum = dot(w[i * S::kPieces + j], x[j], sum);
#pragma unroll
      for (int mask = S::kLanes / 2; mask > 0; mask /= 2)
        sum += __shfl_xor_sync(kAllLanes, sum, mask);
      if (lane % S::kLanes == i) mine = sum;
    }
    const int i = lane % S::kLanes, feature = feature0 + i * (32 / S::kLanes) + lane / S::kLanes;
    if (i < S::kSums) p.out[vector * p.out_stride + feature] = __float2bfloat16_rn(mine);
  }
}

}  // namespace

bool heads_by_rows_takes(const Tensor& out, const Tensor& x, const Linear& w) {
  if (x.dtype != DType::kBF16 || out.dtype != DType::kBF16 || !is_plain(w, DType::kBF16) ||
      !is_aligned(x) || !is_aligned(w.weight.data) || x.rows() > kMostRows * w.experts)
    return false;
  bool whole = false;
  return for_head_inputs(x.cols(),
                         [&](auto in) { whole = out.cols() % Share<in>::kFeatures == 0; }) &&
         whole;
}

void heads_by_rows(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream) {
  SKIFF_CHECK(heads_by_rows_takes(out, x, w));
  const HeadArgs args = head_args(out, x, w);
  for_head_inputs(x.cols(), [&](auto in) {
    const int tasks = args.heads * (args.features / Share<in>::kFeatures);
    const auto blocks = static_cast<unsigned>((tasks + kWarps - 1) / kWarps);
    launch(head_rows_kernel<in>, {blocks, 32 * kWarps, 0, stream}, args);
  });
}

}  // namespace skiff::cuda
