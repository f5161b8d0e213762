// ops/cuda/quant/direct_args.h -- products of a few rows with quantized weights (atoms.h,
// float8_rows.h), which each warp brings to itself.
//
// With one row, or a few, a GEMM has nothing to share: each weight is used once. So there is no
// hand-over from warps that load to warps that multiply, and no sum of partial tiles in device
// memory, which together take longer than a small weight takes to arrive. A warp has 16 weight
// rows, two atoms, and a ring of its own in shared memory, to which it copies several chunks of
// them ahead (cp.async.bulk), the first ones before griddepcontrol.wait. An item, all chunks of two
// atoms, is divided among 1, 2, 4 or 8 warps of a block, whose sums meet in shared memory in a
// fixed order. The next kernel is triggered behind that wait, so one that needs nothing of this one
// may begin without a wait of its own (ops/cuda/beside.h).
//
// How items are divided follows from the weight alone: a row has the same bits whatever the other
// rows are, as long as these kernels take them all (direct_call.h).
#pragma once
#include <algorithm>
#include <cstdint>

#include "arch/spec.h"
#include "ops/cuda/linear/jobs.h"

namespace skiff::cuda::direct {

// A block has kWarps warps, and a multiprocessor runs kBlocks blocks.
constexpr int kWarps = 8, kBlocks = 2;
// Returns the most rows of x that meet a weight. With more, and with scales for groups of columns,
// a warp has so much to do for a chunk that a ring which all share is faster; mma.m16n8k16 would
// take eight.
constexpr int most_rows(int groups) { return groups > 0 ? 2 : 4; }
// Shared memory holds a ring of kRingBytes for each warp, and at most kMostXBytes of rows of x for
// the block.
constexpr int kRingBytes = 8 << 10, kMostXBytes = 36 << 10;
constexpr int kMostStages = 8;  // A ring has at most so many.

// e4m3 weights that lie row by row: weight rows of an item, columns of a chunk, the most rows of x
// that meet them, and the most groups of these that each block had better round for itself.
constexpr int kFloat8Height = 16, kFloat8Columns = 128, kMostFloat8Rows = 4;
constexpr int kMostRounded = 64;

struct DirectArgs {
  const void* x;  // bf16; or e4m3, with Float8Args::x_scales
  int64_t x_stride;
  int rows, in;       // of x, all of which a block keeps
  int pitch;          // bytes from one row to the next in shared memory
  int chunks, pairs;  // of a matrix: chunks of 128 columns, and pairs of atoms
  int log_split;      // split() in binary digits
  JobList jobs;       // with JobList::expert: the copies of one token; else one job has all rows
  bool list_early;    // the list was complete before the previous kernel triggered this one
  bool one_row;       // all jobs share row 0 of x
  void* out;
  int64_t out_stride;
  bool out_f32;
  int features;  // columns of out
  const float* bias;
  Act act;

  // The number of warps that share an item.
  constexpr int split() const { return 1 << log_split; }
};

// The number of warps that share an item, so that the slowest warp has the least to do.
constexpr int split_of(int items, int chunks, int blocks) {
  int best = 1, least = 1 << 30;
  for (int split = 1; split <= kWarps; split *= 2) {
    const int of_block = (items + blocks - 1) / blocks, at_once = kWarps / split;
    const int rounds = (of_block + at_once - 1) / at_once;
    // The end of an item costs about as much as a chunk, and as two where warps meet.
    const int cost = rounds * ((chunks + split - 1) / split + (split > 1 ? 2 : 1));
    if (cost < least) least = cost, best = split;
  }
  return best;
}

// Rows are padded against bank conflicts: ldmatrix reads 16 bytes of each of eight.
constexpr int pitch_of(int chunks) { return chunks * 256 + 16; }
constexpr int64_t x_bytes(int64_t rows, int chunks) { return rows * pitch_of(chunks); }
// Returns the bytes of rows behind which a scale of each chunk of each row lies.
constexpr int64_t scaled_x_bytes(int64_t rows, int chunks) {
  return x_bytes(rows, chunks) + rows * chunks * 4;
}

}  // namespace skiff::cuda::direct
