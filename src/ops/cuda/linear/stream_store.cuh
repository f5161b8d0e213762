// ops/cuda/linear/stream_store.cuh -- the streamed GEMM's epilogue: bias or gate, rounding, and the
// stores of a whole tile.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/linear/stream_lines.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::streamed {

// Transposes a matrix of 8 x 8 elements: lane l holds the pair (row l / 4, columns
// 2 * (l % 4) and the next), before and after. PTX ISA, "movmatrix".
__device__ __forceinline__ uint32_t transposed(uint32_t pair) {
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

// kLines: bf16 goes through the staging buffers.
template <int N, bool kGated, bool kLines = (N >= kFewestLines)>
struct Epilogue {
  static constexpr int kFeatures = kGated ? kTileRows / 2 : kTileRows;  // output columns of a tile

  const StreamArgs& a;
  LineStaging* staging;  // read only where kLines is set

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
    if (!kGated && a.out_f32) return store_each<float, kAct>(sum, s);
    if constexpr (kLines)
      store_lines<kAct>(sum, s);
    else if (a.out_lines)
      store_pairs<kAct>(sum, s);
    else
      store_each<__nv_bfloat16, kAct>(sum, s);
  }

  // The output of a sum: what its gate lets through, or the sum and its bias.
  template <Act kAct>
  static __device__ float output(const float (&sum)[N / 2], int at, float bias) {
    return kGated ? activate(sum[at], kAct) * sum[at + 2] : sum[at] + bias;
  }
  template <Act kAct>
  static __device__ uint32_t output_pair(const float (&sum)[N / 2], int at, float bias) {
    return pack_bf16(output<kAct>(sum, at, bias), output<kAct>(sum, at + 1, bias));
  }

  template <class Out, Act kAct>
  __device__ void store_each(const float (&sum)[N / 2], const TileSlice& s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kConsumers / 32;
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

  // bf16 in pairs of columns: a warp turns its sums around, 8 x 8 at a time.
  template <Act kAct>
  __device__ void store_pairs(const float (&sum)[N / 2], const TileSlice& s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kConsumers / 32;
    const int first = s.tile * kFeatures + warp * (kGated ? 8 : 16);
    const bool has0 = first < a.features, has1 = !kGated && first + 8 < a.features;
    const float b0 = !kGated && has0 ? bias(first + lane / 4) : 0.0f;
    const float b1 = has1 ? bias(first + 8 + lane / 4) : 0.0f;
    auto* to = static_cast<__nv_bfloat16*>(a.out) + (s.job.first + lane / 4) * a.out_stride +
               first + 2 * (lane % 4);
    uint32_t pair[N / 8][2];
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      pair[j][0] = transposed(output_pair<kAct>(sum, 4 * j, b0));
      pair[j][1] = kGated ? 0 : transposed(output_pair<kAct>(sum, 4 * j + 2, b1));
    }
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      if (8 * j + lane / 4 >= s.job.rows) break;
      auto* at = reinterpret_cast<uint32_t*>(to + 8 * j * a.out_stride);
      if (has0) at[0] = pair[j][0];
      if (has1) at[4] = pair[j][1];
    }
  }

  // bf16 in lines. Each warpgroup has its own half of the tile's columns.
  template <Act kAct>
  __device__ void store_lines(const float (&sum)[N / 2], const TileSlice& s) {
    constexpr int kWide = kFeatures / 2;
    const int group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const int first = s.tile * kFeatures + group * kWide;
    const int f = first + warp * 16 + lane / 4;  // without a gate
    const float b0 = !kGated && f < a.features ? bias(f) : 0.0f;
    const float b1 = !kGated && f + 8 < a.features ? bias(f + 8) : 0.0f;
    auto* out = static_cast<__nv_bfloat16*>(a.out) + s.job.first * a.out_stride;
#pragma unroll
    for (int row = 0; row < N; row += kLineRows) {
      if (row >= s.job.rows) break;
      const LineBuffer<kWide> buffer = {staging->next()};
      stage<kAct>(buffer, sum, row / 8, warp, b0, b1);
      named_sync(1 + group, 128);
      buffer.copy(out + row * a.out_stride, a.out_stride, first, a.features, s.job.rows - row,
                  a.out_lines);
    }
  }

  // Stages the sums of kLineRows rows of x from piece `j` on, which has eight.
  template <Act kAct>
  __device__ void stage(const LineBuffer<kFeatures / 2>& buffer, const float (&sum)[N / 2], int j,
                        int warp, float b0, float b1) {
    if constexpr (kGated) {
      const uint32_t pairs[4] = {
          output_pair<kAct>(sum, 4 * j, 0), output_pair<kAct>(sum, 4 * (j + 1), 0),
          output_pair<kAct>(sum, 4 * (j + 2), 0), output_pair<kAct>(sum, 4 * (j + 3), 0)};
      buffer.store(
          pairs, [](int matrix) { return 8 * matrix; }, [&](int) { return 8 * warp; });
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * (j + 2 * i);
        const uint32_t pairs[4] = {
            output_pair<kAct>(sum, at, b0), output_pair<kAct>(sum, at + 2, b1),
            output_pair<kAct>(sum, at + 4, b0), output_pair<kAct>(sum, at + 6, b1)};
        buffer.store(
            pairs, [&](int matrix) { return 8 * (2 * i + matrix / 2); },
            [&](int matrix) { return 16 * warp + 8 * (matrix % 2); });
      }
    }
  }
};

}  // namespace skiff::cuda::streamed
