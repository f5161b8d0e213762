// heads_at_once: with up to 32 rows a block has its weights and all rows of its head in
// shared memory at once. The weights, which no kernel writes, are on their way before
// griddepcontrol.wait, and the rows are one load behind it. A block multiplies 32 KB of a matrix on
// the tensor cores (mma.sync): its warps share the features, or, where those are few, the inputs.
#include <cuda_bf16.h>

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/hopper/lane_copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/head_inputs.h"
#include "ops/cuda/mla/heads.h"
#include "ops/cuda/mma.cuh"

namespace skiff::cuda {
namespace {

constexpr int kMostRows = 32, kWarps = 4, kThreads = 32 * kWarps;
// Where blocks do not all run at once, cuBLASLt is quicker from here on.
constexpr int kMostInTurns = 16;
constexpr int kSteps = 8;      // mma steps of a warp, 16 inputs each
constexpr int kOfWarp = 32;    // features of a warp
constexpr int kSumPitch = 40;  // floats: rows lie in different banks

template <int kIn>
struct Block {
  static constexpr bool kShareInputs = kIn == 16 * kSteps * kWarps;
  static_assert(kShareInputs || kIn == 16 * kSteps);
  static constexpr int kFeatures = kShareInputs ? kOfWarp : kOfWarp * kWarps;
  static constexpr int kPitch = 2 * kIn + 16;  // bytes: eight rows of a matrix lie in all banks
  static size_t shared(int rows) {
    return static_cast<size_t>(kFeatures + (rows + 15) / 16 * 16) * kPitch;
  }
};

// Copies rows of kIn elements.
template <int kIn>
__device__ __forceinline__ void copy_rows(uint8_t* to, const __nv_bfloat16* from, int64_t stride,
                                          int rows) {
  constexpr int kChunks = kIn / 8;
  const int tid = static_cast<int>(threadIdx.x), chunk = tid % kChunks;
  for (int row = tid / kChunks; row < rows; row += kThreads / kChunks)
    copy_piece(shared_address(to + row * Block<kIn>::kPitch + chunk * 16),
               from + row * stride + chunk * 8);
}

// The sums of a warp: of tiles of 16 rows and 8 features.
using Sums = float[kMostRows / 16][kOfWarp / 8][4];

// Multiplies by a warp's weights: from input `in0` and feature `feature0` of the block on. What
// lies behind the last row is any, and so are its sums.
template <int kIn>
__device__ __forceinline__ void multiply(const uint8_t* w, const uint8_t* x, int in0, int feature0,
                                         int row_tiles, Sums& sum) {
  constexpr int kPitch = Block<kIn>::kPitch;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t from_w = shared_address(w + (feature0 + lane / 16 * 8 + lane % 8) * kPitch +
                                         2 * in0 + lane / 8 % 2 * 16);
  const uint32_t from_x = shared_address(x + lane % 16 * kPitch + 2 * in0 + lane / 16 * 16);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    uint32_t b[kOfWarp / 16][4];
#pragma unroll
    for (int n = 0; n < kOfWarp / 16; ++n) load_matrices(b[n], from_w + n * 16 * kPitch + k * 32);
#pragma unroll
    for (int m = 0; m < kMostRows / 16; ++m) {
      if (m >= row_tiles) break;
      uint32_t a[4];
      load_matrices(a, from_x + m * 16 * kPitch + k * 32);
#pragma unroll
      for (int n = 0; n < kOfWarp / 8; ++n)
        mma_bf16(sum[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
  }
}

// f(row, feature, x, y) for each pair of sums of this lane.
template <class F>
__device__ __forceinline__ void for_pairs(const Sums& sum, int rows, F f) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kMostRows / 16; ++m)
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      const int row = m * 16 + lane / 4 + 8 * second;
      if (row >= rows) continue;
#pragma unroll
      for (int n = 0; n < kOfWarp / 8; ++n)
        f(row, n * 8 + lane % 4 * 2, sum[m][n][2 * second], sum[m][n][2 * second + 1]);
    }
}

// Adds what the warps have of the same features, in their order, through `memory`.
template <class Put>
__device__ __forceinline__ void add_warps(const Sums& sum, int rows, float* memory, Put put) {
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32;
  const auto at = [&](int of, int row, int feature) {
    return reinterpret_cast<float2*>(memory + (of * kMostRows + row) * kSumPitch + feature);
  };
  __syncthreads();  // all have read what lies there
  for_pairs(sum, rows, [&](int row, int feature, float x, float y) {
    *at(warp, row, feature) = {x, y};
  });
  __syncthreads();
  constexpr int kPairs = kOfWarp / 2;
  for (int row = tid / kPairs; row < rows; row += kThreads / kPairs) {
    float2 all = *at(0, row, tid % kPairs * 2);
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      const float2 more = *at(w, row, tid % kPairs * 2);
      all.x += more.x, all.y += more.y;
    }
    put(row, tid % kPairs * 2, all.x, all.y);
  }
}

template <int kIn>
__global__ void __launch_bounds__(kThreads) head_blocks_kernel(const __grid_constant__ HeadArgs p) {
  using B = Block<kIn>;
  extern __shared__ __align__(16) uint8_t memory[];
  let_next_start();
  const int head = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / 32;
  const int feature0 = static_cast<int>(blockIdx.x) * B::kFeatures;
  uint8_t* x = memory + B::kFeatures * B::kPitch;
  copy_rows<kIn>(memory, p.w + (int64_t{head} * p.features + feature0) * kIn, kIn, B::kFeatures);
  wait_for_previous();
  copy_rows<kIn>(x, p.x + head * p.x_stride, p.heads * p.x_stride, p.rows);
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  Sums sum = {};
  const int first = B::kShareInputs ? 0 : warp * kOfWarp;
  multiply<kIn>(memory, x, B::kShareInputs ? warp * kSteps * 16 : 0, first, (p.rows + 15) / 16,
                sum);
  __nv_bfloat16* out = p.out + head * p.out_stride + feature0 + first;
  const auto put = [&](int row, int feature, float a, float b) {
    *reinterpret_cast<uint32_t*>(out + row * p.heads * p.out_stride + feature) = pack_bf16(a, b);
  };
  if constexpr (B::kShareInputs)
    add_warps(sum, p.rows, reinterpret_cast<float*>(memory), put);
  else
    for_pairs(sum, p.rows, put);
}

}  // namespace

bool heads_at_once_takes(const Tensor& out, const Tensor& x, const Linear& w) {
  if (x.dtype != DType::kBF16 || out.dtype != DType::kBF16 || !is_plain(w, DType::kBF16) ||
      !is_aligned(x) || !is_aligned(w.weight.data) || !is_aligned(out, 4))
    return false;
  static const int processors = attribute(cudaDevAttrMultiProcessorCount);
  int64_t most = 0;
  for_head_inputs(x.cols(), [&](auto in) {
    constexpr int kFeatures = Block<in>::kFeatures;
    if (out.cols() % kFeatures == 0)
      most = w.experts * out.cols() / kFeatures <= processors ? kMostRows : kMostInTurns;
  });
  return x.rows() <= most * w.experts;
}

void heads_at_once(const Tensor& out, const Tensor& x, const Linear& w, cudaStream_t stream) {
  SKIFF_CHECK(heads_at_once_takes(out, x, w));
  const HeadArgs args = head_args(out, x, w);
  for_head_inputs(x.cols(), [&](auto in) {
    using B = Block<in>;
    allow_shared(head_blocks_kernel<in>, B::shared(kMostRows));
    launch(head_blocks_kernel<in>,
           {.grid = dim3(static_cast<unsigned>(args.features / B::kFeatures),
                         static_cast<unsigned>(args.heads)),
            .block = dim3(kThreads),
            .shared = B::shared(args.rows),
            .stream = stream},
           args);
  });
}

}  // namespace skiff::cuda
