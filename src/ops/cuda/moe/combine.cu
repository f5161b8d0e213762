#include <type_traits>

#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/moe/combination.h"
#include "ops/cuda/moe/combine.cuh"
#include "ops/cuda/moe/combine_cluster.cuh"
#include "ops/cuda/pieces.cuh"
#include "ops/cuda/rows/held_norm.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;

// A thread has kWide neighbouring outputs of a token.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) combine_kernel(Combine c) {
  let_next_start();
  wait_for_previous();
  const Pieces pieces(int64_t{blockIdx.x} * kThreads, c.hidden / kWide);
  const int64_t t = pieces.row_of(threadIdx.x);
  if (t >= c.tokens) return;
  const int at = pieces.column_of(threadIdx.x) * kWide;
  float sum[kWide];
  combine_columns<T>(sum, c, t, at);
  store<kWide>(static_cast<T*>(c.out) + t * c.out_stride + at, sum);
}

// The same where the outputs of a warp are all of one token: lane k finds copy k for all of them.
// With fewer registers for that, more blocks run at the same time.
constexpr int kWarpBlocks = 4;  // a multiprocessor runs so many
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads, kWarpBlocks) combine_warps_kernel(Combine c) {
  let_next_start();
  wait_for_previous();
  const Pieces pieces(int64_t{blockIdx.x} * kThreads, c.hidden / kWide);
  const int64_t t = pieces.row_of(threadIdx.x);
  if (t >= c.tokens) return;
  const int at = pieces.column_of(threadIdx.x) * kWide;
  float sum[kWide];
  combine_in_warp<T>(sum, c, t, at);
  store<kWide>(static_cast<T*>(c.out) + t * c.out_stride + at, sum);
}

// A block has a token. With fewer threads each may have more registers.
constexpr int kFewThreads = 704;
template <class T, int kPieces, int kThreadsOf>
__global__ void __launch_bounds__(kThreadsOf) combine_norm_kernel(Combine c, HeldNorm a) {
  const auto delta = [&](float(&to)[kNormVector], int column) {
    const int64_t t = blockIdx.x;
    combine_columns<T>(to, c, t, column);
#pragma unroll
    for (float& v : to) v = to_float(from_float<T>(v));
    store<kNormVector>(static_cast<T*>(c.out) + t * c.out_stride + column, to);
  };
  held_norm<T, kPieces>(a, true, delta);
}

Combine args_of(const Combination& c) {
  SKIFF_CHECK(c.outer.contiguous() && c.outer.dtype == c.out.dtype);
  return {.out = c.out.data,
          .out_stride = c.out.row_stride,
          .outer = c.outer.data,
          .weight = c.weight.as<float>(),
          .expert = c.expert.as<int32_t>(),
          .position = c.position,
          .more = c.more.data,
          .more_stride = c.more.row_stride,
          .tokens = static_cast<int>(c.out.rows()),
          .hidden = static_cast<int>(c.out.cols()),
          .top_k = static_cast<int>(c.expert.cols())};
}

// Returns whether all rows can be read and written `bytes` at a time.
bool are_aligned(const Combination& c, int64_t bytes) {
  return is_aligned(c.outer, bytes) && is_aligned(c.out, bytes) &&
         (!c.more || is_aligned(c.more, bytes));
}

template <class T>
void start_combine(const Combination& c, cudaStream_t stream) {
  constexpr int kWide = 16 / sizeof(T);
  const Combine args = args_of(c);
  const bool wide = args.hidden % kWide == 0 && are_aligned(c, 16);
  const int64_t pieces = int64_t{args.tokens} * (wide ? args.hidden / kWide : args.hidden);
  const Launch how = {static_cast<unsigned>((pieces + kThreads - 1) / kThreads), kThreads, 0,
                      stream};
  const bool by_warps = wide && args.hidden % (32 * kWide) == 0;
  launch(by_warps ? combine_warps_kernel<T, kWide>
         : wide   ? combine_kernel<T, kWide>
                  : combine_kernel<T, 1>,
         how, args);
}

Matrix matrix_of(const Tensor& t) {
  return {.data = t.data,
          .stride = t.row_stride,
          .type = t.dtype == DType::kF32 ? Float::kF32 : Float::kBF16};
}

// A token's block should not take longer than kernels apart, which divide many tokens among more
// threads.
constexpr int64_t kMostNormedTokens = 8;

// Up to so many tokens leave multiprocessors idle whose blocks have a token each.
constexpr int64_t kMostSpreadTokens = 4;
// Shorter rows are faster in one block. Measured on an H200.
bool is_spread(int64_t tokens, const HeldShape& held) {
  return tokens <= kMostSpreadTokens && held.threads > kFewThreads &&
         blocks_of_row(held.threads) > 1 && kernels_overlap();
}

template <class T>
void start_spread(const Combine& c, const HeldNorm& norm, const HeldShape& held,
                  cudaStream_t stream) {
  const unsigned blocks = blocks_of_row(held.threads);
  launch(held.pieces == 1 ? combine_norm_cluster_kernel<T, 1> : combine_norm_cluster_kernel<T, 2>,
         {dim3(blocks, static_cast<unsigned>(c.tokens)), held.threads / blocks, 0, stream, blocks},
         c, norm);
}

}  // namespace

void combine(const Combination& c, cudaStream_t stream) {
  if (c.out.rows() == 0) return;
  if (c.out.dtype == DType::kF32)
    start_combine<float>(c, stream);
  else
    start_combine<__nv_bfloat16>(c, stream);
}

bool norms_with(const Combination& c, const Tensor& y, const Tensor& residual, const Norm& norm) {
  const int64_t cols = y.cols(), four = kNormVector * static_cast<int64_t>(bytes(y.dtype));
  return y.rows() > 0 && y.rows() <= kMostNormedTokens && y.rows() == c.out.rows() &&
         cols == c.out.cols() && y.dtype == c.out.dtype && residual.dtype == DType::kF32 &&
         held_shape(static_cast<int>(cols)).pieces > 0 && are_aligned(c, four) &&
         is_aligned(y, four) && is_aligned(residual) && is_aligned(norm.weight.data);
}

void combine_norm(const Combination& c, Tensor y, Tensor residual, const Norm& norm,
                  cudaStream_t stream) {
  SKIFF_CHECK(norms_with(c, y, residual, norm), "{} rows of {}", y.rows(), y.cols());
  const HeldNorm args = {matrix_of(y), matrix_of(residual), norm.weight.as<float>(), norm.eps,
                         static_cast<int>(y.cols())};
  const HeldShape held = held_shape(args.cols);
  const Launch how = {static_cast<unsigned>(y.rows()), held.threads, 0, stream};
  const auto start = [&]<class T>(T) {
    if (is_spread(y.rows(), held)) return start_spread<T>(args_of(c), args, held, stream);
    launch(held.threads <= kFewThreads ? combine_norm_kernel<T, 1, kFewThreads>
           : held.pieces == 1          ? combine_norm_kernel<T, 1, kMostHeldThreads>
                                       : combine_norm_kernel<T, 2, kMostHeldThreads>,
           how, args_of(c), args);
  };
  if (y.dtype == DType::kF32)
    start(float{});
  else
    start(__nv_bfloat16{});
}

}  // namespace skiff::cuda
