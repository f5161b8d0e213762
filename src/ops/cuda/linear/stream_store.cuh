// ops/cuda/linear/stream_store.cuh -- the streamed GEMM's epilogue: bias or gate, rounding, and the
// stores of a whole tile.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/linear/stream_args.cuh"
#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::streamed {

template <int N, bool kGated>
struct Epilogue {
  static constexpr int kFeatures = kGated ? kTileRows / 2 : kTileRows;  // output columns of a tile

  const StreamArgs& a;
  char* staging;  // shared memory, 2 * kOutBytes; N == 256 only

  __device__ void write(int64_t row, int feature, float value) {
    put(a.out, a.out_f32, row * a.out_stride + feature, value);
  }
  __device__ float bias(int feature) { return a.bias ? a.bias[feature] : 0.0f; }

  // The sums are not changed, so that the compiler sees only wgmma write them.
  __device__ void store_tile(const float (&sum)[N / 2], const TileSlice& s) {
    if (!kGated || a.act == Act::kSilu)
      store_as<Act::kSilu>(sum, s);
    else
      store_as<Act::kGelu>(sum, s);
  }

 private:
  // Each activation has its own instructions: those of the other one need not be fetched.
  template <Act kAct>
  __device__ void store_as(const float (&sum)[N / 2], const TileSlice& s) {
    if constexpr (N == 256) {
      if (a.out_lines && a.out_f32) return store_lines<float, kAct>(sum, s);
      if (a.out_lines) return store_lines<__nv_bfloat16, kAct>(sum, s);
    }
    if (a.out_f32)
      store_each<float, kAct>(sum, s);
    else
      store_each<__nv_bfloat16, kAct>(sum, s);
  }

  // The output of a sum: what its gate lets through, or the sum and its bias.
  template <Act kAct>
  static __device__ float output(const float (&sum)[N / 2], int at, float bias) {
    return kGated ? activate(sum[at], kAct) * sum[at + 2] : sum[at] + bias;
  }

  template <class Out, Act kAct>
  __device__ void store_each(const float (&sum)[N / 2], const TileSlice& s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int f0 = s.tile * kFeatures + warp * (kGated ? 8 : 16) + lane / 4;
    const bool has0 = f0 < a.features, has1 = !kGated && f0 + 8 < a.features;
    const float b0 = !kGated && has0 ? bias(f0) : 0.0f, b1 = has1 ? bias(f0 + 8) : 0.0f;
    const int first = 2 * (lane % 4);
    Out* to = static_cast<Out*>(a.out) + (s.job.first + first) * a.out_stride + f0;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      if (8 * j >= s.job.rows) break;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * j + first + i >= s.job.rows) continue;
        Out* at = to + (8 * j + i) * a.out_stride;
        if (has0) put(at, output<kAct>(sum, 4 * j + i, b0));
        if (has1) put(at + 8, sum[4 * j + 2 + i] + b1);
      }
    }
  }

  // Through shared memory, so that whole lines are written: each warpgroup stages its own columns,
  // some rows at a time.
  template <class Out, Act kAct>
  __device__ void store_lines(const float (&sum)[N / 2], const TileSlice& s) {
    constexpr int kWide = kFeatures / 2;  // columns of a warpgroup
    constexpr int kPiece = 16 / sizeof(Out), kPieces = kWide / kPiece;
    constexpr int kPitch = kWide * sizeof(Out) + 16, kRows = sizeof(Out) == 2 ? 32 : 16;
    static_assert(kRows * kPitch <= kOutBytes);
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    char* rows = staging + group * kOutBytes;
    const int f = thread / 32 * (kGated ? 8 : 16) + lane / 4;  // within the warpgroup
    const int f0 = s.tile * kFeatures + group * kWide;
    const float b0 = !kGated && f0 + f < a.features ? bias(f0 + f) : 0.0f;
    const float b1 = !kGated && f0 + f + 8 < a.features ? bias(f0 + f + 8) : 0.0f;
#pragma unroll
    for (int part = 0; part < N / kRows; ++part) {
      if (part * kRows >= s.job.rows) break;
      named_sync(1 + group, 128);
#pragma unroll
      for (int jj = 0; jj < kRows / 8; ++jj) {
        const int j = part * (kRows / 8) + jj;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          Out* row = reinterpret_cast<Out*>(rows + (8 * jj + 2 * (lane % 4) + i) * kPitch);
          row[f] = static_cast<Out>(output<kAct>(sum, 4 * j + i, b0));
          if constexpr (!kGated) row[f + 8] = static_cast<Out>(sum[4 * j + 2 + i] + b1);
        }
      }
      named_sync(1 + group, 128);
#pragma unroll
      for (int p = thread; p < kRows * kPieces; p += 128) {
        const int n = part * kRows + p / kPieces, feature = f0 + p % kPieces * kPiece;
        if (n >= s.job.rows || feature >= a.features) continue;
        *reinterpret_cast<uint4*>(static_cast<Out*>(a.out) + (s.job.first + n) * a.out_stride +
                                  feature) =
            *reinterpret_cast<const uint4*>(rows + p / kPieces * kPitch + p % kPieces * 16);
      }
    }
  }
};

}  // namespace skiff::cuda::streamed
