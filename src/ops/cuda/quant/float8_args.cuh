// ops/cuda/quant/float8_args.cuh -- what the streamed GEMM of e4m3 weights that lie row by row
// needs beside StreamArgs, and the stages of its ring.
#pragma once
#include <algorithm>

#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/quant/atom_args.cuh"

namespace skiff::cuda::float8 {

using namespace streamed;

constexpr int kColumns = 128;  // columns of a chunk: a row of it has 128 bytes
constexpr int kFloat8Threads = kConsumers + 128;
// Where many rows need many sums, the warpgroup that loads gives its registers to the others.
constexpr int kLoaderRegisters = 40, kMultiplierRegisters = 232;

struct Float8Args {
  const float* scales;  // [experts][features / 128][scale_stride]
  int64_t scale_stride, expert_scales;
  int up_row;  // gated: the row of scales where those of what the gate lets through begin
  // [chunks][x_scale_stride], 16 bytes aligned and with room for kScaleSlack floats behind the last
  // row.
  const float* x_scales;
  int64_t x_scale_stride;
  // Where outputs leave as codes: their scales, [groups of 128 columns][out_scale_stride], and the
  // bytes from one row of codes to the next.
  float* out_scales;
  int64_t out_scale_stride, out_pitch;
};

// The first row of x of a slice's job.
__device__ __forceinline__ int first_row(const StreamArgs& a, const TileSlice& s) {
  return a.one_row ? 0 : s.job.first;
}

// A stage has the 128 weight rows of each of kTilesOf neighbouring tiles, rows of x, and their
// scales. A block that multiplies the rows of x by two tiles reads them half as often.
template <int N, int kTilesOf = 1>
struct Float8Ring {
  static constexpr int kRows = N, kTiles = kTilesOf;
  static constexpr int kTileBytes = kTileRows * kColumns, kXBytes = N * kColumns;
  static constexpr int kWeightBytes = kTiles * kTileBytes;
  static constexpr int kScaleBytes = (N + atoms::kScaleSlack) * static_cast<int>(sizeof(float));
  static constexpr int kStageBytes = (kWeightBytes + kXBytes + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = std::min(16, 205 * 1024 / kStageBytes);
  static constexpr size_t kRingBytes = size_t{kStages} * kStageBytes;
  static constexpr size_t kSharedBytes = 1024 + kRingBytes + line_bytes(N);

  uint32_t memory, full, empty;  // shared addresses

  __device__ uint32_t weights(int stage) const { return memory + stage * kStageBytes; }
  __device__ uint32_t rows(int stage) const { return weights(stage) + kWeightBytes; }
  __device__ uint32_t scales(int stage) const { return rows(stage) + kXBytes; }
};

}  // namespace skiff::cuda::float8
