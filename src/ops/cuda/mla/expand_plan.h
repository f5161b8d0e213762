// ops/cuda/mla/expand_plan.h -- which rows of a step attend to keys and values of each head, which
// are expanded from the latents of their context (the un-absorbed form), and in which order: a pure
// function of lengths, without CUDA.
//
// Attention of one head to one position takes 2 * (192 + 128) operations on keys and values, and 2
// * (576 + 512) on the latent. Expanding a cached position for a head takes 2 * 512 * (128 + 128),
// as much as the absorbed form spends on a new row. So a span of new rows gains if it is long
// against the context before it: from 171 rows on by the operations alone, from some 300 on as
// measured.
//
// The contexts of the spans of a pass lie one after the other, each filled up with zeros to a
// multiple of kExpandTile, so that no tile of keys has positions of two sequences.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace skiff::cuda {

constexpr int kExpandTile = 128;  // the rows, or positions, of a tile
// The most that a pass has, because kernels get it by value.
constexpr int kMaxExpandSpans = 32, kMaxExpandTiles = 512;
// Positions whose latents are gathered at a time.
constexpr int kExpandPiece = 16384;
// The scratch of a pass: a counter, the rotated keys of its positions, the latents of a piece of
// them, and keys and values of as many heads as fit beside these.
constexpr size_t kExpandScratch = size_t{224} << 20, kExpandCounterBytes = 256;

// Rows [row, row + rows) of the batch, and the context of the last of them, which begins at
// position `at` of the pass.
struct ExpandSpan {
  int32_t seq, row, rows, kv_len, at;
};
struct ExpandSpans {
  int32_t count = 0;
  int32_t positions = 0;  // the sum of all contexts, a multiple of kExpandTile
  ExpandSpan span[kMaxExpandSpans];
};
// The tile-th kExpandTile rows of a span, or the rest.
struct ExpandTile {
  uint16_t span, tile;
};
// Tiles with the longest contexts come first.
struct ExpandPass {
  ExpandSpans spans;
  int32_t tiles = 0;
  ExpandTile tile[kMaxExpandTiles];
};

// Returns whether a sequence's new rows are computed un-absorbed. `kv_len` counts them.
bool expands(int rows, int kv_len);

// Returns the heads whose keys and values fit in the scratch, of a pass with so many positions.
int expanded_heads(int64_t positions);

// row_start has one entry more than kv_len.
std::vector<ExpandPass> make_expand_passes(std::span<const int32_t> row_start,
                                           std::span<const int32_t> kv_len);

// The longest runs of neighbouring rows of sequences that do not expand.
struct RowRun {
  int32_t row, rows;
};
std::vector<RowRun> absorbed_runs(std::span<const int32_t> row_start,
                                  std::span<const int32_t> kv_len);

}  // namespace skiff::cuda
