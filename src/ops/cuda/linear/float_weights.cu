#include <cuda_bf16.h>

#include "ops/cuda/align.h"
#include "ops/cuda/hopper/cluster.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/float_parts.cuh"
#include "ops/cuda/linear/float_weights.h"
#include "ops/cuda/linear/float_weights_rows.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/mma.cuh"

namespace skiff::cuda {
namespace {

constexpr int kEach = 8;           // elements of a row that a lane loads at a time
constexpr int kChunk = 4 * kEach;  // elements that the four lanes of a row load together
// Up to kFewRows the latency of loads decides: the warps of a cluster split the inner dimension
// (split-K), above kFewestRows with tiles so large that each element is loaded less often. Above
// kManyRows tiles are larger, so that weights are read less often.
constexpr int kFewestRows = 32, kFewRows = 256, kManyRows = 1024;

struct Product {
  float* out;
  const __nv_bfloat16* x;
  const float *w, *bias;
  int64_t out_stride, x_stride;
  int rows, in, out_features;
  bool beside;  // waits for the kernels before this one at its end
};

// Eight weights, each as bf16 numbers that add up to it, in pairs.
struct Parts {
  uint32_t pair[kFloatParts][kEach / 2];
};

__device__ Parts split(const float (&w)[kEach]) {
  Parts parts;
#pragma unroll
  for (int i = 0; i < kEach; i += 2) {
    const FloatParts two = split_floats(w[i], w[i + 1]);
#pragma unroll
    for (int p = 0; p < kFloatParts; ++p) parts.pair[p][i / 2] = two.pair[p];
  }
  return parts;
}

__device__ void read(float (&to)[kEach], const float* from) {
#pragma unroll
  for (int i = 0; i < kEach; i += 4) {
    const float4 four = from ? *reinterpret_cast<const float4*>(from + i) : float4{};
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

__device__ void put(const Product& p, int row, int o, float value) {
  if (row < p.rows && o < p.out_features) p.out[row * p.out_stride + o] = value;
}

// A block computes 16 * kM rows of 8 * kN outputs. Its warps take the chunks of the inner dimension
// in turn and load kAhead of them before they multiply (the first weights before
// griddepcontrol.wait, since no kernel writes them); the warps' sums are added up in a fixed order.
// The kCluster blocks of a cluster compute the same outputs and share the chunks.
// Lane 4 * g + t loads elements [8 * t, 8 * t + 8) of a chunk. mma.sync expects other elements in
// each lane, but the order of a sum's terms is free as long as both operands have the same.
template <int kWarps, int kM, int kN, int kAhead, int kCluster>
__global__ void __launch_bounds__(32 * kWarps) float_weights_kernel(Product p) {
  constexpr int kThreads = 32 * kWarps, kStride = kCluster * kWarps * kChunk;
  constexpr int kSums = kM * 16 * 8 * kN;
  __shared__ float part[kWarps][16][8 * kN + 1];
  __shared__ float block_sums[kCluster > 1 ? kSums : 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row0 = blockIdx.y * 16 * kM, out0 = blockIdx.x / kCluster * 8 * kN;
  const int rank = blockIdx.x % kCluster;
  float sum[kM][kN][4] = {};
  float w[kAhead][kN][kEach];
  uint4 x[kAhead][kM][2];
  const auto load_weights = [&](int begin) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int o = out0 + 8 * n + g, k = begin + a * kStride;
        read(w[a][n], k < p.in && o < p.out_features ? p.w + int64_t{o} * p.in + k : nullptr);
      }
    }
  };
  const auto load_rows = [&](int begin) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
#pragma unroll
      for (int m = 0; m < 2 * kM; ++m) {
        const int row = row0 + 8 * m + g, k = begin + a * kStride;
        const auto* from = reinterpret_cast<const uint4*>(p.x + row * p.x_stride + k);
        x[a][m / 2][m % 2] = k < p.in && row < p.rows ? __ldcg(from) : uint4{};
      }
    }
  };
  let_next_start();
  int begin = (rank * kWarps + warp) * kChunk + t * kEach;
  load_weights(begin);
  if (!p.beside) wait_for_previous();
  while (begin - t * kEach < p.in) {
    load_rows(begin);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const Parts parts = split(w[a][n]);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const uint4 &upper = x[a][m][0], &lower = x[a][m][1];
          const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
          const uint32_t second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
          for (int i = kFloatParts - 1; i >= 0; --i) {  // the smallest parts first
            mma_bf16(sum[m][n], first, parts.pair[i][0], parts.pair[i][1]);
            mma_bf16(sum[m][n], second, parts.pair[i][2], parts.pair[i][3]);
          }
        }
      }
    }
    begin += kAhead * kStride;
    load_weights(begin);
  }
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) part[warp][g + i / 2 * 8][8 * n + 2 * t + i % 2] = sum[m][n][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * 8 * kN; i += kThreads) {
      const int r = i / (8 * kN), c = i % (8 * kN);
      const int o = out0 + c;
      float all = kCluster == 1 && p.bias && o < p.out_features ? p.bias[o] : 0.0f;
#pragma unroll
      for (int j = 0; j < kWarps; ++j) all += part[j][r][c];
      if constexpr (kCluster > 1)
        block_sums[m * 16 * 8 * kN + i] = all;
      else
        put(p, row0 + 16 * m + r, o, all);
    }
  }
  if constexpr (kCluster > 1) {
    cluster_sync();
    for (int i = rank * kThreads + threadIdx.x; i < kSums; i += kCluster * kThreads) {
      const int o = out0 + i % (8 * kN);
      float all = p.bias && o < p.out_features ? p.bias[o] : 0.0f;
#pragma unroll
      for (int j = 0; j < kCluster; ++j) all += of_peer(block_sums[i], j);
      put(p, row0 + i / (8 * kN), o, all);
    }
    cluster_sync();  // nobody leaves before all have read its sums
  }
  if (p.beside) wait_for_previous();
}

template <int kWarps, int kM, int kN, int kAhead, int kCluster = 1>
void start(const Product& p, cudaStream_t stream) {
  const auto tiles = [](int n, int size) { return static_cast<unsigned>((n + size - 1) / size); };
  const Launch how = {.grid = {kCluster * tiles(p.out_features, 8 * kN), tiles(p.rows, 16 * kM)},
                      .block = 32 * kWarps,
                      .stream = stream,
                      .cluster = kCluster};
  launch(float_weights_kernel<kWarps, kM, kN, kAhead, kCluster>, how, p);
}

}  // namespace

bool float_weights_take(const Tensor& out, const Tensor& x, const Linear& w) {
  return x.dtype == DType::kBF16 && is_plain(w, DType::kF32) && out.dtype == DType::kF32 &&
         x.cols() % kEach == 0 && is_aligned(x) && is_aligned(w.weight);
}

void float_weights_product(Tensor out, Tensor x, const Linear& w, FloatWeightsMode mode,
                           cudaStream_t stream) {
  if (out.rows() == 0) return;
  SKIFF_CHECK(float_weights_take(out, x, w), "{} x {} by {} float32 weights", x.rows(), x.cols(),
              w.weight.rows());
  if (mode.hopper && !mode.one_order && float_weights_rows_take(x, w))
    return float_weights_rows(out, x, w, mode.beside, stream);
  const Product p = {.out = out.as<float>(),
                     .x = static_cast<const __nv_bfloat16*>(x.data),
                     .w = w.weight.as<float>(),
                     .bias = w.bias ? w.bias.as<float>() : nullptr,
                     .out_stride = out.row_stride,
                     .x_stride = x.row_stride,
                     .rows = static_cast<int>(out.rows()),
                     .in = static_cast<int>(x.cols()),
                     .out_features = static_cast<int>(out.cols()),
                     .beside = mode.beside};
  // The order of additions follows from the numbers of warps and of blocks in a cluster alone.
  if (p.rows <= kFewRows && (mode.one_order || !kernels_overlap()))
    start<8, 1, 1, 5>(p, stream);
  else if (p.rows <= kFewestRows)
    start<8, 1, 1, 7, 4>(p, stream);
  else if (p.rows <= kFewRows)
    start<8, 2, 4, 1, 8>(p, stream);
  else if (p.rows <= kManyRows)
    start<8, 1, 2, 2>(p, stream);
  else
    start<8, 4, 4, 1>(p, stream);
}

}  // namespace skiff::cuda
