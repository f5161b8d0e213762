// ops/cuda/quant/channel_args.cuh -- what the GEMM of float8_channels.h needs, and the stages of
// its ring.
#pragma once
#include <algorithm>

#include "arch/spec.h"
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/quant/channel_shape.h"

namespace skiff::cuda::channels {

constexpr int kConsumers = 256;            // threads of the two warpgroups that multiply
constexpr int kThreads = kConsumers + 64;  // and of two warps that load

struct ChannelArgs {
  int rows, chunks, jobs,
      splits;  // rows of x and chunks of columns; jobs of rows; cluster's blocks
  const float *scales,
      *x_scales;  // one for each weight row, padded to whole tiles; one for each row of x
  void* out;
  int64_t out_stride;
  bool out_f32;
  bool out_lines;  // rows of out can be written 16 bytes at a time
  int features;    // columns of out
  const float* bias;
  Act act;
};

// What a block computes: chunks [begin, end) of its tile by rows [first, first + rows).
struct ChannelPart {
  int rank, tile, first, rows, begin, end;
};
template <int N>
__device__ ChannelPart part_of(const ChannelArgs& a) {
  const int block = static_cast<int>(blockIdx.x), rank = block % a.splits;
  const int item = block / a.splits, first = item % a.jobs * N;
  return {rank,
          item / a.jobs,
          first,
          min(N, a.rows - first),
          rank * a.chunks / a.splits,
          (rank + 1) * a.chunks / a.splits};
}

// A stage has the weight rows of a tile and rows of x. Two rings fit a multiprocessor.
template <int N>
struct ChannelRing {
  static constexpr int kRows = N;
  static constexpr int kWeightBytes = kTileRows * kColumns, kXBytes = N * kColumns;
  static constexpr int kStageBytes = kWeightBytes + kXBytes;
  static constexpr int kStages = std::min(8, 104 * 1024 / kStageBytes);
  static constexpr size_t kRingBytes = size_t{kStages} * kStageBytes;
  static constexpr size_t kSharedBytes = 1024 + kRingBytes;

  uint32_t memory, full, empty;  // shared addresses

  __device__ uint32_t weights(int stage) const { return memory + stage * kStageBytes; }
  __device__ uint32_t rows(int stage) const { return weights(stage) + kWeightBytes; }
};

}  // namespace skiff::cuda::channels
