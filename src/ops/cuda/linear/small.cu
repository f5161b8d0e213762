#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/small.h"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kWide = 8;  // elements that a thread loads at a time
constexpr int kMaxHeld = kSmallIn / (kThreads * kWide);

struct Small {
  void* out;
  const __nv_bfloat16* x;
  const void* w;
  const float* bias;
  int64_t out_stride, x_stride;
  int rows, in;
};

// A block keeps the weights of one output in registers, kHeld vectors in each thread, and
// multiplies them by one row after the other.
template <int kHeld, class W, class Out>
__global__ void __launch_bounds__(kThreads) small_kernel(Small s) {
  let_next_start();
  __shared__ float part[kSmallRows][kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const W* row = static_cast<const W*>(s.w) + int64_t{blockIdx.x} * s.in;
  float w[kHeld][kWide] = {};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int at = (static_cast<int>(threadIdx.x) + i * kThreads) * kWide;
    if (at < s.in) load<kWide>(w[i], row + at);
  }
  const float bias = s.bias ? s.bias[blockIdx.x] : 0.0f;
  wait_for_previous();
#pragma unroll 2
  for (int r = 0; r < s.rows; ++r) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int at = (static_cast<int>(threadIdx.x) + i * kThreads) * kWide;
      float x[kWide] = {};
      if (at < s.in) load<kWide>(x, s.x + r * s.x_stride + at);
#pragma unroll
      for (int j = 0; j < kWide; ++j) sum = fmaf(w[i][j], x[j], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) part[r][warp] = sum;
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r >= s.rows) return;
  float sum = bias;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += part[r][i];
  put(static_cast<Out*>(s.out) + r * s.out_stride + blockIdx.x, sum);
}

template <class W, class Out>
void start(const Small& s, const Launch& how) {
  if (s.in <= 4 * kThreads * kWide)
    launch(small_kernel<4, W, Out>, how, s);
  else
    launch(small_kernel<kMaxHeld, W, Out>, how, s);
}

template <class W>
void start(const Small& s, DType out, const Launch& how) {
  if (out == DType::kF32)
    start<W, float>(s, how);
  else
    start<W, __nv_bfloat16>(s, how);
}

}  // namespace

bool small_product_takes(const Tensor& x, const Linear& weights) {
  const Tensor& w = weights.weight;
  const int most = w.dtype == DType::kF32 ? kSmallFloatRows : kSmallRows;
  return x.dtype == DType::kBF16 && (w.dtype == DType::kBF16 || w.dtype == DType::kF32) &&
         x.rows() <= most && x.cols() % kWide == 0 && x.cols() <= kSmallIn && is_plain(weights) &&
         w.elements() <= kSmallWeights && is_aligned(x) && is_aligned(w);
}

void small_product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) {
  if (out.rows() == 0) return;
  SKIFF_CHECK(small_product_takes(x, w), "{} x {} by {} is no small GEMM", x.rows(), x.cols(),
              w.weight.rows());
  const Small s = {.out = out.data,
                   .x = static_cast<const __nv_bfloat16*>(x.data),
                   .w = w.weight.data,
                   .bias = w.bias ? w.bias.as<float>() : nullptr,
                   .out_stride = out.row_stride,
                   .x_stride = x.row_stride,
                   .rows = static_cast<int>(out.rows()),
                   .in = static_cast<int>(x.cols())};
  const Launch how = {static_cast<unsigned>(out.cols()), kThreads, 0, stream};
  if (w.weight.dtype == DType::kF32)
    start<float>(s, out.dtype, how);
  else
    start<__nv_bfloat16>(s, out.dtype, how);
}

}  // namespace skiff::cuda
