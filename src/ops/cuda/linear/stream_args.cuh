// ops/cuda/linear/stream_args.cuh -- the streamed GEMM's arguments, and the sizes of its tiles.
//
// A tile of outputs is 128 weight rows by N rows of x. The inner dimension is cut into chunks of
// 64; the weights and rows of x of one chunk are a stage of a ring in shared memory. In a gated
// GEMM the 128 weight rows are 64 gate and 64 up rows, interleaved by eight, so that the thread
// that holds a gate's sum also holds its up's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "arch/spec.h"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/linear/jobs.h"

namespace skiff::cuda::streamed {

constexpr int kTileRows = 128, kChunk = 64;
constexpr int kBoxRows = 64;  // the most rows of x that one copy brings
// Rows of x that one copy brings of a job of so many rows. A kernel expects the bytes of the boxes
// that its tensor map has: both take their rows from the same function.
constexpr int full_box_rows(int rows) { return rows < kBoxRows ? rows : kBoxRows; }
constexpr int kConsumers = 256;  // threads of the two warpgroups that multiply
constexpr int kThreads = kConsumers + 64;
constexpr int kCounterBytes = 4096;  // at the start of the workspace
// At the end of the counters: a counter of claims and one of blocks that are done, for gated GEMMs
// and for others.
constexpr int kClaimCounters = 4;
constexpr int kWidestSplit = 128;  // tiles of more rows are not cut by stream-K
// Floats of the workspace that each block has for partial sums: two tiles that are cut, or one that
// is not.
constexpr int kBlockPartials = 2 * kTileRows * kWidestSplit;

struct StreamArgs {
  JobList jobs;     // empty: rows [0, rows) of x in jobs of N
  bool one_row;     // all jobs share row 0 of x, the only one
  bool jobs_early;  // the list was complete before the previous kernel triggered this one
  int rows, tiles, chunks;
  bool split;         // stream-K: tiles are cut along the inner dimension to balance the blocks
  int cut;            // > 0: whole tiles, summed in the pieces into which stream-K cuts one job's
  bool next_at_once;  // triggers the next kernel before this one's predecessor has ended
  bool packed;        // the weights are Packing::kTiles
  Keep keep_weights;
  void* out;
  int64_t out_stride;
  bool out_f32;
  bool out_lines;  // rows of out can be written 16 bytes at a time
  int features;    // columns of out
  const float* bias;
  Act act;
  unsigned* claims;  // null: whole tiles are dealt out in turn
  // Whole tiles without a list: a tile of weights is dealt out with so many neighbouring jobs
  // before the next one, so that blocks at work share weights and rows of x in the L2.
  int jobs_at_once;
  unsigned* counters;
  float* partials;
};

// The ring takes as much of a multiprocessor's shared memory as leaves room for a small kernel.
constexpr int stages(int n) { return n == 256 ? 4 : 205 * 1024 / ((kTileRows + n) * 128); }
constexpr int stage_bytes(int n) { return (kTileRows + n) * kChunk * 2; }
// Outputs of this many rows of x and more leave through shared memory, in lines, kLineRows rows at
// a time: each warpgroup has two buffers, whose rows are padded by 16 bytes against bank conflicts.
constexpr int kFewestLines = 64, kLineRows = 32;
constexpr int kOutBytes = kLineRows * (64 * 2 + 16);
constexpr size_t line_bytes(int n) { return n >= kFewestLines ? 4 * kOutBytes : 0; }
constexpr size_t shared_bytes(int n) {
  return 1024 + static_cast<size_t>(stages(n)) * stage_bytes(n) + line_bytes(n);
}

// The ring of stages: shared addresses of its memory and barriers.
template <int N>
struct StageRing {
  static constexpr int kStages = stages(N), kStageBytes = stage_bytes(N);
  static constexpr int kWeightBytes = kTileRows * kChunk * 2, kRowBytes = kChunk * 2;

  uint32_t memory, full, empty;

  __device__ uint32_t weights(int stage) const { return memory + stage * kStageBytes; }
  __device__ uint32_t rows(int stage) const { return weights(stage) + kWeightBytes; }
};

}  // namespace skiff::cuda::streamed
