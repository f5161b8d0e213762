// ops/cuda/attention/plan.h -- which block attends to which part of which context in a step: a pure
// function of lengths, without CUDA.
//
// Decoding reads the cache once and ends with the last byte, so every block should read the same
// number of bytes. A sequence's context is cut into tiles of kTile positions (at absolute
// positions); all tiles of all kv heads of all decoding sequences, in the order (sequence, head,
// tile), make one list, and block b takes its tiles [b * per_block, (b+1) * per_block). A head
// whose tiles go to several blocks is reduced by the block that finishes last, always in the order
// of the tiles. Equal shares as in FlashMLA's scheduler and HPC-Ops' decode attention.
//
// With PlanShape::piece a row's result does not depend on the other sequences. Each context is cut
// into pieces of so many tiles, at absolute positions. Pieces take the place of tiles in that list:
// block b takes those that begin in its equal part of the tiles, or, where there are no more pieces
// than blocks, piece b. The results of a head's pieces are folded in the order of positions,
// whichever blocks have them. The first kShortPieces have that length, so that one short context
// keeps many multiprocessors busy, and others are longer, since a fold costs time. The prefill
// kernel folds the same pieces, and adds in the order in which the kernel for decoding over a cache
// of bf16 does. Over quantized caches decoding has another order, so there all rows are decoded.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace skiff::cuda {

constexpr int kTile = 64;          // positions
constexpr int kPackedRows = 16;    // query vectors of one kv head in a decode block
constexpr int kPrefillRows = 128;  // query vectors of one kv head in a prefill block
constexpr int kMaxShares = 4;      // a sequence that needs more shares goes to the prefill kernel

// Layers with the same PlanShape share one plan.
struct PlanShape {
  int kv_heads = 0;
  int group = 0;             // query heads per kv head
  int window = 0;            // 0: all
  int blocks = 0;            // the decode kernel's blocks; at most the layout's
  int piece = 0;             // tiles of a piece; 0: contexts are cut anywhere
  int parts = 0;             // results of pieces that can be stored
  bool decodes_all = false;  // no sequence goes to the prefill kernel
  bool operator==(const PlanShape&) const = default;
};

// Returns whether the prefill kernel computes a sequence's new rows.
constexpr bool is_prefilled(const PlanShape& shape, int rows) {
  const int per_share = shape.group < kPackedRows ? kPackedRows / shape.group : 1;
  return !shape.decodes_all && rows > per_share * kMaxShares;
}

// Some rows of one sequence, few enough for kPackedRows, and the tiles that they see.
struct DecodeShare {
  int32_t seq, row, rows;     // `row` is the first, as an index into the batch
  int32_t kv_len;             // context of the last row
  int32_t first_tile, tiles;  // tiles >= 1
  int32_t base;               // number of tiles (or pieces), over all heads, of earlier shares
  int32_t stored;             // positions [0, stored) were stored by earlier steps
};

constexpr int kShortPieces = 8;
constexpr int kLongPiece = 4;  // in short ones; divides kShortPieces, and is a power of two

// The piece that a tile lies in, the first tile of a piece, and whether a tile is one. `piece` is
// PlanShape's, a power of two.
constexpr int piece_of(int tile, int piece) {
  if (tile < kShortPieces * piece) return tile / piece;
  return kShortPieces - kShortPieces / kLongPiece + tile / (kLongPiece * piece);
}
constexpr int piece_begin(int index, int piece) {
  if (index < kShortPieces) return index * piece;
  return (index - kShortPieces + kShortPieces / kLongPiece) * kLongPiece * piece;
}
constexpr bool begins_piece(int tile, int piece) {
  return (tile & ((tile < kShortPieces * piece ? piece : kLongPiece * piece) - 1)) == 0;
}

// The pieces that a share's tiles lie in; with 0 the tiles.
constexpr int units(const DecodeShare& s, int piece) {
  if (piece == 0) return s.tiles;
  return piece_of(s.first_tile + s.tiles - 1, piece) - piece_of(s.first_tile, piece) + 1;
}

// Some packed rows of one sequence: packed row i is query head i % group of row i / group.
struct PrefillTile {
  int32_t seq;
  int32_t row, rows;  // `row` indexes the batch; rows * group <= kPrefillRows
  int32_t kv_len;     // context of the last row
};

// Where a block's part of the list begins, and the share that has this tile (or piece).
struct BlockBegin {
  int32_t at, share;
};

struct PlanHead {
  int32_t total;      // number of tiles (or pieces) of all shares and heads
  int32_t per_block;  // tiles of a block where there are no pieces; >= 1
  int32_t shares, prefill_tiles;
  int32_t rows_end;  // rows from here on are padding
  // A head is not divided: it belongs to the block in whose part of the list it begins. Set where
  // there are more pieces than results of pieces can be stored.
  int32_t undivided;
  int32_t unused[2];
};

// The memory of a plan: head, where each block begins and the last one ends, shares, prefill tiles
// (those with most work first).
struct PlanLayout {
  int blocks = 0, max_shares = 0, max_prefill_tiles = 0;

  size_t begins() const { return sizeof(PlanHead); }
  size_t shares() const {
    return begins() + ((static_cast<size_t>(blocks) + 1) * sizeof(BlockBegin) + 15) / 16 * 16;
  }
  size_t prefill() const {
    return (shares() + static_cast<size_t>(max_shares) * sizeof(DecodeShare) + 15) / 16 * 16;
  }
  size_t bytes() const {
    return (prefill() + static_cast<size_t>(max_prefill_tiles) * sizeof(PrefillTile) + 63) / 64 *
           64;
  }
};
// A layout that holds every plan of steps within these limits, for groups of up to 16; with
// `pieces`, plans of shapes that have PlanShape::piece.
PlanLayout plan_layout(int blocks, int max_seqs, int max_tokens, bool pieces = false);

// Writes the plan of a step into `memory` (layout.bytes(), aligned to 16). row_start has one entry
// more than kv_len. Bytes up to the returned size are in use. Contexts may turn out to be shorter
// by up to `back` positions: then the tiles of windows begin as much earlier.
size_t make_plan(const PlanShape& shape, std::span<const int32_t> row_start,
                 std::span<const int32_t> kv_len, const PlanLayout& layout, std::byte* memory,
                 int back = 0);

}  // namespace skiff::cuda
