#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/tiled.h"
#include "ops/cuda/linear/tiles.h"
#include "ops/cuda/quant/atom_call.h"
#include "ops/cuda/quant/codes.cuh"
#include "ops/cuda/quant/float8_channels.h"
#include "ops/cuda/quant/float8_rows.h"
#include "ops/cuda/quant/packed_value.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kSide = 16, kPer = kTile / kSide;
static_assert(kTile == kTiledJobRows);

struct Product {
  void* out;
  const void* x;
  const float* bias;
  int64_t out_stride, x_stride;
  int rows, in, out_features;
  JobList jobs;
};

// Weights as the kernel reads them: element (row, column) of matrix `expert` of a stack.
template <class T>
struct PlainWeights {
  const T* data;
  int rows, in;

  __device__ float at(int expert, int row, int column) const {
    return to_float(data[(int64_t{expert} * rows + row) * in + column]);
  }
};
struct PackedWeights {
  const __nv_bfloat16* data;
  int rows, in;

  __device__ float at(int expert, int row, int column) const {
    return to_float(data[int64_t{expert} * rows * in + tile_index(row, column, rows)]);
  }
};
struct Float8Weights {
  const uint8_t* data;
  const float* scales;
  Float8Rows sizes;

  __device__ float at(int expert, int row, int column) const {
    constexpr int kBlock = Float8Rows::kBlock;
    const int64_t block = expert * sizes.scale_rows() + row / kBlock;
    return scales[block * sizes.scale_stride() + column / kBlock] *
           value_of_float8(data[(expert * sizes.out + row) * sizes.in + column]);
  }
};
struct ChannelWeights {
  const uint8_t* data;
  const float* scales;
  int in;

  __device__ float at(int, int row, int column) const {
    return scales[row] * value_of_float8(data[int64_t{row} * in + column]);
  }
};
struct QuantizedWeights {
  atoms::AtomArgs args;
  AtomFormat format;

  __device__ float at(int expert, int row, int column) const {
    return atoms::value_at(args, format, expert, row, column);
  }
};

// Loads a tile of x, kTile rows from `row` on by kDepth columns from `k` on, transposed; zeros
// outside of the matrix.
template <class T>
__device__ void fetch(float (*to)[kTile + 1], const T* from, int64_t stride, int rows, int row,
                      int in, int k) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kSide * kSide) {
    const int r = i / kDepth, c = i % kDepth;
    const bool inside = row + r < rows && k + c < in;
    to[c][r] = inside ? to_float(from[(row + r) * stride + k + c]) : 0.0f;
  }
}

// Loads a tile of weights in the same way.
template <class W>
__device__ void fetch(float (*to)[kTile + 1], const W& weights, int expert, int rows, int row,
                      int in, int k) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kSide * kSide) {
    const int r = i / kDepth, c = i % kDepth;
    const bool inside = row + r < rows && k + c < in;
    to[c][r] = inside ? weights.at(expert, row + r, k + c) : 0.0f;
  }
}

// A block computes kTile rows x kTile outputs; thread (i, j) those at i, i + 16, ... and j, j + 16,
// ...
template <class X, class Out, class W>
__global__ void __launch_bounds__(kSide* kSide) tiled_kernel(Product p, W weights) {
  let_next_start();
  wait_for_previous();
  int first = blockIdx.y * kTile, rows = p.rows, expert = 0;
  if (p.jobs.jobs) {
    if (blockIdx.y >= *p.jobs.count) return;
    const Job job = p.jobs.jobs[blockIdx.y];
    first = job.first;
    rows = job.first + job.rows;
    expert = job.expert;
  }
  const int out0 = blockIdx.x * kTile;
  __shared__ float xs[kDepth][kTile + 1], ws[kDepth][kTile + 1];
  const int i = threadIdx.x / kSide, j = threadIdx.x % kSide;
  float sum[kPer][kPer] = {};
  for (int k = 0; k < p.in; k += kDepth) {
    fetch(xs, static_cast<const X*>(p.x), p.x_stride, rows, first, p.in, k);
    fetch(ws, weights, expert, p.out_features, out0, p.in, k);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kDepth; ++c) {
      float a[kPer], b[kPer];
#pragma unroll
      for (int u = 0; u < kPer; ++u) {
        a[u] = xs[c][i + u * kSide];
        b[u] = ws[c][j + u * kSide];
      }
#pragma unroll
      for (int u = 0; u < kPer; ++u) {
#pragma unroll
        for (int v = 0; v < kPer; ++v) sum[u][v] = fmaf(a[u], b[v], sum[u][v]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int u = 0; u < kPer; ++u) {
#pragma unroll
    for (int v = 0; v < kPer; ++v) {
      const int r = first + i + u * kSide, o = out0 + j + v * kSide;
      if (r >= rows || o >= p.out_features) continue;
      const float value = p.bias ? sum[u][v] + p.bias[o] : sum[u][v];
      put(static_cast<Out*>(p.out) + r * p.out_stride + o, value);
    }
  }
}

template <class W>
void start_with(const W& weights, const Product& p, DType x, DType out, const Launch& how) {
  using B = __nv_bfloat16;
  if (x == DType::kF32 && out == DType::kF32)
    launch(tiled_kernel<float, float, W>, how, p, weights);
  else if (x == DType::kF32)
    launch(tiled_kernel<float, B, W>, how, p, weights);
  else if (out == DType::kF32)
    launch(tiled_kernel<B, float, W>, how, p, weights);
  else
    launch(tiled_kernel<B, B, W>, how, p, weights);
}

void start(const Product& p, DType x, const Linear& w, DType out, int row_tiles,
           cudaStream_t stream) {
  const unsigned columns = static_cast<unsigned>((p.out_features + kTile - 1) / kTile);
  const Launch how = {{columns, static_cast<unsigned>(row_tiles)}, kSide * kSide, 0, stream};
  if (is_atoms(w))
    return start_with(QuantizedWeights{atoms::args_of(w), atoms::format_of(w)}, p, x, out, how);
  if (is_float8_rows(w))
    return start_with(Float8Weights{static_cast<const uint8_t*>(w.weight.data), w.scale.as<float>(),
                                    float8_rows_of(w)},
                      p, x, out, how);
  if (is_float8_channels(w))
    return start_with(
        ChannelWeights{static_cast<const uint8_t*>(w.weight.data), w.scale.as<float>(), p.in}, p, x,
        out, how);
  const auto* half = static_cast<const __nv_bfloat16*>(w.weight.data);
  if (is_tiles(w)) return start_with(PackedWeights{half, p.out_features, p.in}, p, x, out, how);
  if (w.weight.dtype == DType::kBF16)
    return start_with(PlainWeights<__nv_bfloat16>{half, p.out_features, p.in}, p, x, out, how);
  start_with(PlainWeights<float>{w.weight.as<float>(), p.out_features, p.in}, p, x, out, how);
}

Product describe(Tensor out, Tensor x, const Linear& weights) {
  const Tensor& w = weights.weight;
  const bool quantized =
      is_atoms(weights) || is_float8_rows(weights) || is_float8_channels(weights);
  SKIFF_CHECK(is_plain(weights) || is_tiles(weights) || quantized,
              "weights in a packing of another backend");
  SKIFF_CHECK(
      quantized || x.dtype == w.dtype || (x.dtype == DType::kBF16 && w.dtype == DType::kF32),
      "x is {}, w {}", name(x.dtype), name(w.dtype));
  SKIFF_CHECK(x.dtype == DType::kF32 || x.dtype == DType::kBF16, "x is {}", name(x.dtype));
  SKIFF_CHECK(out.dtype == DType::kF32 || out.dtype == DType::kBF16, "out is {}", name(out.dtype));
  return {.out = out.data,
          .x = x.data,
          .out_stride = out.row_stride,
          .x_stride = x.row_stride,
          .rows = static_cast<int>(out.rows()),
          .in = static_cast<int>(x.cols()),
          .out_features = static_cast<int>(out.cols())};
}

}  // namespace

void tiled_product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) {
  if (out.rows() == 0) return;
  Product p = describe(out, x, w);
  p.bias = w.bias ? w.bias.as<float>() : nullptr;
  start(p, x.dtype, w, out.dtype, (p.rows + kTile - 1) / kTile, stream);
}

void tiled_product(Tensor out, Tensor x, const Linear& w, const JobList& jobs,
                   cudaStream_t stream) {
  if (out.rows() == 0) return;
  SKIFF_CHECK(w.experts > 0 && !w.bias);
  Product p = describe(out, x, w);
  p.jobs = jobs;
  start(p, x.dtype, w, out.dtype, jobs.capacity, stream);
}

}  // namespace skiff::cuda
