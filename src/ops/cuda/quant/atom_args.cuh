// ops/cuda/quant/atom_args.cuh -- what the streamed GEMM of packed weights needs beside StreamArgs,
// and the stages of its ring.
//
// A stage has a chunk of 128 columns: the rows of x as wgmma reads them (64 columns of bf16, or 128
// of e4m3, to a row of 128 bytes), then 16 atoms, then the scales of e4m3 rows.
#pragma once
#include <algorithm>

#include "ops/cuda/linear/stream_args.cuh"
#include "ops/cuda/quant/atoms.h"

namespace skiff::cuda::atoms {

struct AtomArgs {
  const std::byte* atoms;
  int64_t matrix_bytes, chunk_bytes;
  int atom_bytes, scales_at, zeros_at;
  AtomScale scale;
  bool zeros, signed_zeros;
  unsigned fixed_zero;      // what codes of four bits count from
  int up_atoms;             // gated: atoms of a chunk before those of what the gate lets through
  const float* row_scales;  // [experts][padded rows], or null: scales lie in the atoms
  int64_t padded_rows;
  bool one_row;               // all jobs share row 0 of x
  const float* x_row_scales;  // scales of rows that are whole numbers, or null
  // Scales of e4m3 rows, one for each chunk: [chunks][x_scale_stride], 16 bytes aligned and with
  // room for kScaleSlack floats behind the last row.
  const float* x_scales;
  int64_t x_scale_stride;
};

// One team of two warpgroups multiplies, or two teams do, which have one tile of a pair each. Two
// warps load. Where many rows need many sums, these are of a warpgroup of their own, which gives
// its registers to the others.
constexpr bool are_few(int rows) { return rows <= 32; }
constexpr int atom_threads(int rows, int teams = 1) {
  return teams * streamed::kConsumers + (are_few(rows) ? 64 : 128);
}
template <int kTeams>
constexpr int kLoaderRegisters = kTeams == 1 ? 40 : 32;
template <int kTeams>
constexpr int kMultiplierRegisters = kTeams == 1 ? 232 : 112;
// The most blocks of a multiprocessor. Several have smaller rings and more warps, which issue while
// others wait: elements of four bits take more instructions than their bytes take to arrive.
constexpr int most_blocks(Codes codes, int rows, int tiles) {
  if (codes != Codes::kFour || rows > (tiles > 1 ? 32 : 24)) return 1;
  return rows == 8 && tiles == 1 ? 3 : 2;
}
// Returns whether weights are converted as fast as they can come, so that what x costs counts:
// pairs of tiles of four-bit codes without scales of groups.
constexpr bool are_fast(Codes codes, int groups, int tiles) {
  return codes == Codes::kFour && groups == 0 && tiles > 1;
}
// Returns whether so many rows of x are multiplied by single warps, which takes fewer instructions
// and less waiting for few of them. But each warp reads all of them from shared memory, and a
// warpgroup reads them once.
constexpr bool by_warps(Codes codes, int groups, int rows, int tiles) {
  return codes != Codes::kFloat8Held && rows <= (are_fast(codes, groups, tiles) ? 8 : 24);
}

// Rows of x that one copy brings. Jobs of few rows are seldom full: what they lack is not copied,
// since the L2 delivers rows of x and weights at the same rate.
constexpr int box_rows(int rows) { return rows <= 32 ? 8 : std::min(rows / 2, streamed::kBoxRows); }

constexpr int kScaleSlack = 4;  // floats by which rows may begin behind an aligned address
constexpr int kBlockAtoms = streamed::kTileRows / kAtomHeight;

// Returns whether a block can multiply its rows of x by two neighbouring tiles of weights at a
// time, so that it reads them half as often: where scales of groups do not take the registers for
// it. Pairs of more rows than kMostCutPair are not cut by stream-K.
constexpr bool takes_pairs(int groups) { return groups == 0; }
constexpr int kMostCutPair = streamed::kWidestSplit / 2;

// The sizes that a kernel is compiled for: groups of a chunk, rows of x, blocks of a
// multiprocessor, tiles of weights that a block multiplies at a time, which lie one after the
// other in a stage, and teams that divide these.
template <Codes kOf, int kGroupsOf, int N, int kBlocksOf, int kTilesOf = 1, int kTeamsOf = 1>
struct AtomRing {
  static constexpr Codes kCodes = kOf;
  static constexpr int kGroups = kGroupsOf;
  static constexpr int kRows = N, kTiles = kTilesOf, kBlocks = kBlocksOf, kTeams = kTeamsOf;
  static constexpr int kTeamTiles = kTiles / kTeams;
  static constexpr int kMultipliers = kTeams * streamed::kConsumers;  // threads
  static constexpr bool kHeld = kCodes == Codes::kFloat8Held;
  static constexpr int kXBytes = N * kAtomWidth * (kHeld ? 1 : 2);
  static constexpr AtomFormat kLargest = {kCodes, kGroups, AtomScale::kRowF32,
                                          kCodes == Codes::kFour};
  static constexpr int kScaleBytes = kHeld ? (N + kScaleSlack) * 4 : 0;
  static constexpr int kStageBytes =
      (kXBytes + kTiles * kBlockAtoms * kLargest.bytes() + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = std::min(16, (kBlocks == 3   ? 72
                                               : kBlocks == 2 ? 110
                                                              : 205) *
                                                  1024 / kStageBytes);
  static constexpr size_t kRingBytes = size_t{kStages} * kStageBytes;
  static constexpr size_t kSharedBytes = 1024 + kRingBytes + streamed::line_bytes(N);

  uint32_t memory, full, empty;  // shared addresses

  __device__ uint32_t rows(int stage) const { return memory + stage * kStageBytes; }
  __device__ uint32_t weights(int stage) const { return rows(stage) + kXBytes; }
  __device__ uint32_t scales(int stage) const {
    return weights(stage) + kTiles * kBlockAtoms * kLargest.bytes();
  }
};

}  // namespace skiff::cuda::atoms
