// ops/cuda/linear/tiles.h -- Packing::kTiles: a stack of weights in the order in which the streamed
// GEMM reads it. Pure functions without CUDA, so that a test on the host can play a TMA copy.
//
// A matrix [rows, in] is cut into atoms of 8 rows by 64 columns, 1024 contiguous bytes of bf16. In
// an atom, 16-byte chunk c of row r lies in the place of chunk c ^ r: the 128-byte swizzle in which
// wgmma reads its operands. Atoms of the same 64 columns follow each other down the rows; then come
// the next 64 columns. So a stage of the streamed GEMM, 128 rows by 64 columns, is one piece of 16
// KB, and in a gated GEMM, where it is 64 gate and 64 up rows interleaved by eight, two pieces of 8
// KB. TMA copies it as it is, without swizzling, in one instruction.
#pragma once
#include <array>
#include <cstdint>

namespace skiff::cuda {

constexpr int kAtomRows = 8, kAtomCols = 64;
constexpr int kAtomElements = kAtomRows * kAtomCols, kAtomBytes = 2 * kAtomElements;

// Returns whether a matrix can be packed without padding, gated or not.
constexpr bool fits_tiles(int64_t rows, int64_t in) {
  return rows % (int64_t{2} * kAtomRows) == 0 && in % kAtomCols == 0;
}

// Returns where element (row, col) of a matrix lies, in elements from the matrix's beginning.
constexpr int64_t tile_index(int64_t row, int64_t col, int64_t rows) {
  const int64_t atom = col / kAtomCols * (rows / kAtomRows) + row / kAtomRows;
  const int64_t r = row % kAtomRows, chunk = col % kAtomCols / 8;
  return atom * kAtomElements + r * kAtomCols + (chunk ^ r) * 8 + col % 8;
}

// A packed stack as a tensor of 32-bit words for TMA, an atom being the fastest dimension, and the
// box that is a stage of `stage_rows` weight rows.
struct TileMap {
  std::array<uint64_t, 5> size;
  std::array<uint64_t, 4> stride_bytes;
  std::array<uint32_t, 5> box;
};
constexpr TileMap tile_map(int64_t experts, int64_t rows, int64_t in, int stage_rows, bool gated) {
  const auto atoms = static_cast<uint64_t>(rows / kAtomRows);
  const auto columns = static_cast<uint64_t>(experts * (in / kAtomCols));
  const auto stage = static_cast<uint32_t>(stage_rows / kAtomRows);
  const uint64_t column_bytes = atoms * kAtomBytes, all = columns * column_bytes;
  constexpr uint32_t kWords = kAtomBytes / 4;
  if (gated)
    return {{kWords, 2, atoms / 2, columns, 1},
            {column_bytes / 2, kAtomBytes, column_bytes, all},
            {kWords, 2, stage / 2, 1, 1}};
  return {{kWords, atoms, columns, 1, 1},
          {kAtomBytes, column_bytes, all, all},
          {kWords, stage, 1, 1, 1}};
}

// The coordinates of the box of a stage: chunk `chunk` (64 columns, of `chunks`) of tile `tile`.
constexpr std::array<int, 5> tile_box(int expert, int tile, int chunk, int chunks, int stage_rows,
                                      bool gated) {
  const int column = expert * chunks + chunk, atom = tile * (stage_rows / kAtomRows);
  if (gated) return {0, 0, atom / 2, column, 0};
  return {0, atom, column, 0, 0};
}

}  // namespace skiff::cuda
