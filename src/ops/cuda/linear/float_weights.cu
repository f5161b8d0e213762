#include <cuda_bf16.h>

#include "ops/cuda/hopper/warp.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/float_weights.h"

namespace skiff::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kEach = 8;           // elements that a lane reads of a row at a time
constexpr int kChunk = 4 * kEach;  // by the four lanes that share a row
// Above so many rows a block takes a larger tile, and weights are read less often.
constexpr int kFewRows = 1024;

struct Product {
  float* out;
  const __nv_bfloat16* x;
  const float *w, *bias;
  int64_t out_stride, x_stride;
  int rows, in, out_features;
};

// Eight weights as three rows of bf16 numbers that add up to them, in pairs.
struct Parts {
  uint32_t pair[3][kEach / 2];
};

__device__ Parts split(const float (&w)[kEach]) {
  Parts parts;
#pragma unroll
  for (int i = 0; i < kEach; i += 2) {
    float low = w[i], high = w[i + 1];
#pragma unroll
    for (int p = 0; p < 3; ++p) {
      const uint32_t pair = pack_bf16(low, high);
      parts.pair[p][i / 2] = pair;
      low -= __uint_as_float(pair << 16);
      high -= __uint_as_float(pair & 0xffff0000u);
    }
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

// A block makes 16 * kM rows of 8 * kN outputs. Its warps take turns with chunks of the inner
// dimension, and their sums are added up in a fixed order. Lane 4 * g + t reads elements
// [8 * t, 8 * t + 8) of a chunk; mma.sync wants others of each lane, but the order of a sum's terms
// is free as long as both operands have the same.
template <int kM, int kN>
__global__ void __launch_bounds__(kThreads) float_weights_kernel(Product p) {
  let_next_start();
  wait_for_previous();
  __shared__ float part[kWarps][16][8 * kN + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row0 = blockIdx.y * 16 * kM, out0 = blockIdx.x * 8 * kN;
  float sum[kM][kN][4] = {};
  for (int k = warp * kChunk + t * kEach; k - t * kEach < p.in; k += kWarps * kChunk) {
    const bool inside = k < p.in;
    uint4 x[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row0 + 16 * m + 8 * half + g;
        const auto* from = reinterpret_cast<const uint4*>(p.x + row * p.x_stride + k);
        x[m][half] = inside && row < p.rows ? *from : uint4{};
      }
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const int o = out0 + 8 * n + g;
      float w[kEach];
      read(w, inside && o < p.out_features ? p.w + int64_t{o} * p.in + k : nullptr);
      const Parts parts = split(w);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const uint32_t first[4] = {x[m][0].x, x[m][1].x, x[m][0].y, x[m][1].y};
        const uint32_t second[4] = {x[m][0].z, x[m][1].z, x[m][0].w, x[m][1].w};
#pragma unroll
        for (int i = 2; i >= 0; --i) {  // the smallest parts first
          multiply(sum[m][n], first, parts.pair[i][0], parts.pair[i][1]);
          multiply(sum[m][n], second, parts.pair[i][2], parts.pair[i][3]);
        }
      }
    }
  }
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
      const int row = row0 + 16 * m + r, o = out0 + c;
      if (row >= p.rows || o >= p.out_features) continue;
      float all = p.bias ? p.bias[o] : 0.0f;
#pragma unroll
      for (int j = 0; j < kWarps; ++j) all += part[j][r][c];
      p.out[row * p.out_stride + o] = all;
    }
  }
}

template <int kM, int kN>
void start(const Product& p, cudaStream_t stream) {
  const auto tiles = [](int n, int size) { return static_cast<unsigned>((n + size - 1) / size); };
  const Launch how = {{tiles(p.out_features, 8 * kN), tiles(p.rows, 16 * kM)}, kThreads, 0, stream};
  launch(float_weights_kernel<kM, kN>, how, p);
}

bool on_16_bytes(const Tensor& t) {
  const auto row = t.row_stride * static_cast<int64_t>(bytes(t.dtype));
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && row % 16 == 0;
}

}  // namespace

bool float_weights_take(const Tensor& out, const Tensor& x, const Tensor& w) {
  return x.dtype == DType::kBF16 && w.dtype == DType::kF32 && out.dtype == DType::kF32 &&
         x.cols() % kEach == 0 && w.contiguous() && on_16_bytes(x) && on_16_bytes(w);
}

void float_weights_product(Tensor out, Tensor x, Tensor w, Tensor bias, cudaStream_t stream) {
  if (out.rows() == 0) return;
  SKIFF_CHECK(float_weights_take(out, x, w), "{} x {} by {} float32 weights", x.rows(), x.cols(),
              w.rows());
  const Product p = {.out = out.as<float>(),
                     .x = static_cast<const __nv_bfloat16*>(x.data),
                     .w = w.as<float>(),
                     .bias = bias ? bias.as<float>() : nullptr,
                     .out_stride = out.row_stride,
                     .x_stride = x.row_stride,
                     .rows = static_cast<int>(out.rows()),
                     .in = static_cast<int>(x.cols()),
                     .out_features = static_cast<int>(out.cols())};
  if (p.rows <= kFewRows)
    start<1, 2>(p, stream);
  else
    start<4, 4>(p, stream);
}

}  // namespace skiff::cuda
