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

  __device__ void store_tile(const float (&sum)[N / 2], const TileSlice& s, const Job& job) {
    if constexpr (N == 256) {
      if (a.out_lines && a.out_f32) return store_lines<float>(sum, s, job);
      if (a.out_lines) return store_lines<__nv_bfloat16>(sum, s, job);
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int f0 = s.tile * kFeatures + warp * (kGated ? 8 : 16) + lane / 4;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = 8 * j + 2 * (lane % 4) + i;
        if (n >= job.rows) continue;
        if constexpr (kGated) {
          if (f0 < a.features)
            write(job.first + n, f0, activate(sum[4 * j + i], a.act) * sum[4 * j + 2 + i]);
        } else {
          if (f0 < a.features) write(job.first + n, f0, sum[4 * j + i] + bias(f0));
          if (f0 + 8 < a.features) write(job.first + n, f0 + 8, sum[4 * j + 2 + i] + bias(f0 + 8));
        }
      }
    }
  }

 private:
  // Through shared memory, so that whole lines are written: each warpgroup stages its own columns,
  // some rows at a time.
  template <class Out>
  __device__ void store_lines(const float (&sum)[N / 2], const TileSlice& s, const Job& job) {
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
      if (part * kRows >= job.rows) break;
      named_sync(1 + group, 128);
#pragma unroll
      for (int jj = 0; jj < kRows / 8; ++jj) {
        const int j = part * (kRows / 8) + jj;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          Out* row = reinterpret_cast<Out*>(rows + (8 * jj + 2 * (lane % 4) + i) * kPitch);
          if constexpr (kGated) {
            row[f] = static_cast<Out>(activate(sum[4 * j + i], a.act) * sum[4 * j + 2 + i]);
          } else {
            row[f] = static_cast<Out>(sum[4 * j + i] + b0);
            row[f + 8] = static_cast<Out>(sum[4 * j + 2 + i] + b1);
          }
        }
      }
      named_sync(1 + group, 128);
#pragma unroll
      for (int p = thread; p < kRows * kPieces; p += 128) {
        const int n = part * kRows + p / kPieces, feature = f0 + p % kPieces * kPiece;
        if (n >= job.rows || feature >= a.features) continue;
        *reinterpret_cast<uint4*>(static_cast<Out*>(a.out) + (job.first + n) * a.out_stride +
                                  feature) =
            *reinterpret_cast<const uint4*>(rows + p / kPieces * kPitch + p % kPieces * 16);
      }
    }
  }
};

}  // namespace skiff::cuda::streamed
