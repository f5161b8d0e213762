#include "ops/cuda/quant/round_rows.h"

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/round_row.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256, kPiece = 8;  // elements that a thread loads at a time
constexpr int kMostEach = 16;              // the most pieces of a row that a thread keeps

struct Args {
  uint8_t* to;
  float* scales;
  const __nv_bfloat16* x;
  int64_t x_stride;
  int in;
};

// The largest of all threads' numbers.
__device__ float largest_of_block(float mine) {
  __shared__ float most[kThreads / 32];
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = mine;
  __syncthreads();
  float all = 0;
#pragma unroll
  for (const float m : most) all = fmaxf(all, m);
  return all;
}

__device__ __forceinline__ void put_codes(uint8_t* to, const uint4& pairs, float scale) {
  *reinterpret_cast<uint2*>(to) = {codes_of_four(pairs.x, pairs.y, scale),
                                   codes_of_four(pairs.z, pairs.w, scale)};
}

// A block has a row, whose pieces it keeps in registers: kEach of each thread.
template <int kEach>
__global__ void __launch_bounds__(kThreads) round_rows_kernel(Args a) {
  let_next_start();
  wait_for_previous();
  const auto* x = reinterpret_cast<const uint4*>(a.x + blockIdx.x * a.x_stride);
  const int pieces = a.in / kPiece;
  uint4 pairs[kEach] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at < pieces) pairs[i] = __ldcg(x + at);
  }
  float most = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) most = largest_of(most, pairs[i]);
  const float scale = scale_of_row(largest_of_block(most));
  uint8_t* to = a.to + int64_t{blockIdx.x} * a.in;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at < pieces) put_codes(to + at * kPiece, pairs[i], scale);
  }
  if (threadIdx.x == 0) a.scales[blockIdx.x] = scale;
}

// Rows of any length, which are read twice.
__global__ void __launch_bounds__(kThreads) round_long_rows_kernel(Args a) {
  let_next_start();
  wait_for_previous();
  const auto* x = reinterpret_cast<const uint4*>(a.x + blockIdx.x * a.x_stride);
  const int pieces = a.in / kPiece;
  float most = 0;
  for (int at = threadIdx.x; at < pieces; at += kThreads) most = largest_of(most, __ldcg(x + at));
  const float scale = scale_of_row(largest_of_block(most));
  uint8_t* to = a.to + int64_t{blockIdx.x} * a.in;
  for (int at = threadIdx.x; at < pieces; at += kThreads)
    put_codes(to + at * kPiece, __ldcg(x + at), scale);
  if (threadIdx.x == 0) a.scales[blockIdx.x] = scale;
}

size_t scale_bytes(int64_t rows) {
  return (static_cast<size_t>(rows) * sizeof(float) + 255) / 256 * 256;
}

void start(const Args& a, int64_t rows, cudaStream_t stream) {
  const int each = (a.in + kThreads * kPiece - 1) / (kThreads * kPiece);
  const Launch how = {static_cast<unsigned>(rows), kThreads, 0, stream};
  if (each <= 1) return launch(round_rows_kernel<1>, how, a);
  if (each <= 2) return launch(round_rows_kernel<2>, how, a);
  if (each <= 4) return launch(round_rows_kernel<4>, how, a);
  if (each <= 8) return launch(round_rows_kernel<8>, how, a);
  if (each <= kMostEach) return launch(round_rows_kernel<kMostEach>, how, a);
  launch(round_long_rows_kernel, how, a);
}

}  // namespace

size_t rounded_rows_bytes(int64_t rows, int64_t in) {
  return scale_bytes(rows) + static_cast<size_t>(rows * in);
}

int64_t rounded_rows_that_fit(size_t bytes, int64_t in) {
  constexpr size_t kSlack = 256;
  SKIFF_CHECK(bytes > kSlack, "{} bytes of scratch", bytes);
  return static_cast<int64_t>((bytes - kSlack) / (static_cast<size_t>(in) + sizeof(float)));
}

bool rounds_rows(const Tensor& x) {
  return x.dtype == DType::kBF16 && x.cols() % kPiece == 0 && is_aligned(x);
}

RoundedRows rounded_rows_of(const InputScratch& scratch, const Tensor& x) {
  SKIFF_CHECK(rounds_rows(x) && rounded_rows_bytes(x.rows(), x.cols()) <= scratch.bytes,
              "{} rows of {} activations to round", x.rows(), x.cols());
  RoundedRows rounded = {.x = x, .scales = static_cast<const float*>(scratch.data)};
  rounded.x.dtype = DType::kF8E4M3;
  rounded.x.data = static_cast<std::byte*>(scratch.data) + scale_bytes(x.rows());
  rounded.x.row_stride = x.cols();
  return rounded;
}

RoundedRows round_rows(const InputScratch& scratch, const Tensor& x, cudaStream_t stream) {
  const RoundedRows rounded = rounded_rows_of(scratch, x);
  const Args a = {.to = static_cast<uint8_t*>(rounded.x.data),
                  .scales = static_cast<float*>(scratch.data),
                  .x = static_cast<const __nv_bfloat16*>(x.data),
                  .x_stride = x.row_stride,
                  .in = static_cast<int>(x.cols())};
  if (x.rows() > 0) start(a, x.rows(), stream);
  return rounded;
}

}  // namespace skiff::cuda
