// ops/cuda/quant/direct_args.h -- products of a few rows with quantized weights (atoms.h,
// float8_rows.h, float8_channels.h), which each warp brings to itself.
//
// With one row, or a few, a GEMM has nothing to share: each weight is used once. So there is no
// hand-over from warps that load to warps that multiply, and no sum of partial tiles in device
// memory, which together take longer than a small weight takes to arrive. A warp has 16 weight
// rows, two atoms, and a ring of its own in shared memory, to which it copies several chunks of
// them ahead, the first ones before griddepcontrol.wait: each lane the bytes that it multiplies
// itself (cp.async), where they lie as it needs them, else one lane for all (cp.async.bulk). An
// item, all chunks of two atoms, is divided among some warps of a block, whose sums meet in shared
// memory in a fixed order. The next kernel is triggered behind that wait, so one that needs nothing
// of this one may begin without a wait of its own (ops/cuda/beside.h).
//
// How items are divided follows from the weight alone: a row has the same bits whatever the other
// rows are, as long as these kernels take them all (direct_call.h).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arch/spec.h"
#include "ops/cuda/linear/jobs.h"

namespace skiff::cuda::direct {

// How a kernel divides a multiprocessor: the warps of a block, and the bytes of each warp's ring.
// One block with all warps stages rows of x once, and is alone on its multiprocessor, so that
// blocks of the next kernel do not gather on some of them.
struct Division {
  int warps, ring_bytes;
  constexpr bool operator==(const Division&) const = default;
};
// Four-bit weights arrive faster than their instructions are issued, and deeper rings are slower.
constexpr Division kFourDivision = {16, 4 << 10};
constexpr Division kEightDivision = {16, 8 << 10};
constexpr Division kFloat8Division = {16, 8 << 10};
// With so few warps, a block leaves room for one of another product on its multiprocessor.
constexpr int kBesideWarps = 8;
constexpr Division kFourBeside = {kBesideWarps, 4 << 10};
constexpr Division kEightBeside = {kBesideWarps, 8 << 10};

// Returns the most rows of x that meet a weight. With more, and with scales for groups of columns,
// a warp has so much to do for a chunk that a ring which all share is faster; mma.m16n8k16 would
// take eight.
constexpr int most_rows(int groups) { return groups > 0 ? 2 : 4; }
// Shared memory holds the rings, and at most kMostXBytes of rows of x for the block. A block that
// is to be alone asks for kAloneBytes at least.
constexpr int kMostXBytes = 36 << 10, kAloneBytes = 100 << 10;
constexpr int kMostStages = 8;  // A ring has at most so many.

// e4m3 weights that lie row by row: weight rows of an item, columns of a chunk, the most rows of x
// that meet them, and the most groups of these that each block had better round for itself.
constexpr int kFloat8Height = 16, kFloat8Columns = 128, kMostFloat8Rows = 4;
constexpr int kMostRounded = 128;

struct DirectArgs {
  const void* x;  // bf16; or e4m3, with Float8Args::x_scales
  int64_t x_stride;
  int rows, in;       // the shape of x, which a block keeps whole
  int pitch;          // bytes from one row to the next in shared memory
  int chunks, pairs;  // a matrix has chunks of 128 columns, and pairs of atoms
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

// The number of warps that share an item, so that the slowest warp has the least to do. The end of
// an item costs about as much as two chunks, and where warps meet as several more, because all of
// them have instructions to issue before their first chunk and behind their last. Measured on an
// H200: docs/performance.md.
constexpr int split_of(int items, int chunks, int blocks, int warps) {
  int best = 1, least = 1 << 30;
  for (int split = 1; split <= warps; split *= 2) {
    const int of_block = (items + blocks - 1) / blocks, at_once = warps / split;
    const int rounds = (of_block + at_once - 1) / at_once;
    const int cost = rounds * ((chunks + split - 1) / split + (split > 1 ? 6 + split : 2));
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

// Returns the dynamic shared memory of a block with so many bytes of rows of x.
constexpr size_t shared_bytes(const Division& d, int64_t of_x) {
  const auto bytes = static_cast<size_t>(int64_t{d.warps} * d.ring_bytes + of_x);
  return d.warps > kBesideWarps ? std::max<size_t>(bytes, kAloneBytes) : bytes;
}

}  // namespace skiff::cuda::direct
