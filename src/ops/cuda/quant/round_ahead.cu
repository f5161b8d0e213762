#include "ops/cuda/quant/round_ahead.h"

#include "base/check.h"
#include "ops/cuda/activation.cuh"
#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/round_row.cuh"
#include "ops/cuda/rows/held_norm.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kGateThreads = 512, kGatePiece = 8;  // elements that a thread takes at a time
constexpr int kMostPieces = 8;                     // the most that a thread has

struct Codes8 {
  uint8_t* to;
  float* scales;
};

// The largest of all threads' numbers. A block calls it once.
__device__ float block_max(float x) {
  __shared__ float most[32];
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = x;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  return warp_max(lane < blockDim.x / 32 ? most[lane] : 0);
}

template <int kPieces>
__global__ void norm_rounding_kernel(HeldNorm a, Matrix delta, Codes8 codes) {
  const auto more = [&](float(&to)[kNormVector], int c) {
    load<kNormVector>(to, row_of<__nv_bfloat16>(delta, blockIdx.x) + c);
  };
  held_norm<__nv_bfloat16, kPieces>(a, delta.data != nullptr, more, [&](const auto& v) {
    uint2 pairs[kPieces];  // as they were stored
    float most = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      pairs[i] = {pack_bf16(v[i][0], v[i][1]), pack_bf16(v[i][2], v[i][3])};
      most = largest_of(largest_of(most, pairs[i].x), pairs[i].y);
    }
    const float scale = scale_of_row(block_max(most));
    auto* to = reinterpret_cast<uint32_t*>(codes.to + int64_t{blockIdx.x} * a.cols);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int at = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      if (at * kNormVector < a.cols) to[at] = codes_of_four(pairs[i].x, pairs[i].y, scale);
    }
    if (threadIdx.x == 0) codes.scales[blockIdx.x] = scale;
  });
}

__device__ __forceinline__ uint32_t gated_pair(uint32_t gate, uint32_t up, Act act) {
  const auto one = [&](float g, float u) {
    return u * (act == Act::kSilu ? silu_fast(g) : gelu(g));
  };
  return pack_bf16(one(low_bf16(gate), low_bf16(up)), one(high_bf16(gate), high_bf16(up)));
}

// A block has a row, of which a thread holds kPieces pieces.
template <int kPieces>
__global__ void __launch_bounds__(kGateThreads)
    gate_rounding_kernel(Matrix out, Matrix gate_up, int width, Act act, Codes8 codes) {
  let_next_start();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const auto* gates = reinterpret_cast<const uint4*>(row_of<const __nv_bfloat16>(gate_up, row));
  const auto* ups = gates + width / kGatePiece;
  auto* values = reinterpret_cast<uint4*>(row_of<__nv_bfloat16>(out, row));
  const int pieces = width / kGatePiece;
  uint4 gate[kPieces] = {}, up[kPieces] = {};
  const auto for_pieces = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (const int at = i * kGateThreads + static_cast<int>(threadIdx.x); at < pieces) f(i, at);
  };
  for_pieces([&](int i, int at) { gate[i] = __ldcs(gates + at), up[i] = __ldcs(ups + at); });
  float most = 0;
  for_pieces([&](int i, int at) {
    gate[i] = {gated_pair(gate[i].x, up[i].x, act), gated_pair(gate[i].y, up[i].y, act),
               gated_pair(gate[i].z, up[i].z, act), gated_pair(gate[i].w, up[i].w, act)};
    values[at] = gate[i];
    most = largest_of(most, gate[i]);
  });
  const float scale = scale_of_row(block_max(most));
  auto* to = reinterpret_cast<uint2*>(codes.to + row * width);
  for_pieces([&](int i, int at) {
    to[at] = {codes_of_four(gate[i].x, gate[i].y, scale),
              codes_of_four(gate[i].z, gate[i].w, scale)};
  });
  if (threadIdx.x == 0) codes.scales[row] = scale;
}

Matrix matrix(const Tensor& t) {
  if (!t) return {};
  return {t.data, t.row_stride, t.dtype == DType::kF32 ? Float::kF32 : Float::kBF16};
}

Codes8 codes_of(const RoundedRows& rows, const InputScratch& scratch) {
  return {static_cast<uint8_t*>(rows.x.data), static_cast<float*>(scratch.data)};
}

int pieces_of(int64_t width) {
  constexpr int64_t kAtOnce = int64_t{kGateThreads} * kGatePiece;
  return static_cast<int>((width + kAtOnce - 1) / kAtOnce);
}

}  // namespace

bool rounds_norm(const Tensor& out, const Tensor& residual, const Tensor& delta, const Norm& norm) {
  return rounds_rows(out) && residual.dtype == DType::kF32 && is_aligned(residual) &&
         (!delta || (delta.dtype == DType::kBF16 && is_aligned(delta, 8))) &&
         is_aligned(norm.weight.data) && held_shape(static_cast<int>(out.cols())).pieces > 0;
}

RoundedRows add_norm_rounding(const Tensor& out, const Tensor& residual, const Tensor& delta,
                              const Norm& norm, const InputScratch& scratch, cudaStream_t stream) {
  SKIFF_CHECK_EQ(residual.cols(), out.cols());
  SKIFF_CHECK_EQ(norm.weight.elements(), out.cols());
  const RoundedRows rows = rounded_rows_of(scratch, out);
  if (out.rows() == 0) return rows;
  const HeldShape held = held_shape(static_cast<int>(out.cols()));
  const Launch how = {.grid = dim3(static_cast<unsigned>(out.rows())),
                      .block = dim3(held.threads),
                      .stream = stream};
  const HeldNorm a = {matrix(out), matrix(residual), norm.weight.as<float>(), norm.eps,
                      static_cast<int>(out.cols())};
  launch(held.pieces == 1 ? norm_rounding_kernel<1> : norm_rounding_kernel<2>, how, a,
         matrix(delta), codes_of(rows, scratch));
  return rows;
}

bool rounds_gated(const Tensor& out, const Tensor& gate_up) {
  return rounds_rows(out) && gate_up.dtype == DType::kBF16 && is_aligned(gate_up) &&
         pieces_of(out.cols()) <= kMostPieces;
}

RoundedRows gated_act_rounding(const Tensor& out, const Tensor& gate_up, Act act,
                               const InputScratch& scratch, cudaStream_t stream) {
  SKIFF_CHECK_EQ(2 * out.cols(), gate_up.cols());
  const RoundedRows rows = rounded_rows_of(scratch, out);
  if (out.rows() == 0) return rows;
  const Launch how = {.grid = dim3(static_cast<unsigned>(out.rows())),
                      .block = dim3(kGateThreads),
                      .stream = stream};
  const int pieces = pieces_of(out.cols());
  const auto kernel = pieces <= 1   ? gate_rounding_kernel<1>
                      : pieces <= 2 ? gate_rounding_kernel<2>
                      : pieces <= 4 ? gate_rounding_kernel<4>
                                    : gate_rounding_kernel<kMostPieces>;
  launch(kernel, how, matrix(out), matrix(gate_up), static_cast<int>(out.cols()), act,
         codes_of(rows, scratch));
  return rows;
}

}  // namespace skiff::cuda
