// ops/cuda/mla/plan.h -- which block attends to which part of which context in a step of latent
// attention: a pure function of lengths, without CUDA.
//
// All heads of a row attend to the same cached vectors, so a query vector (row * heads + head of
// the batch) is to a block what a row is elsewhere. A sequence's query vectors are cut into items
// of kLatentRows, or of twice as many, and the context of an item into tiles of kLatentTile
// positions. All tiles of all items, in order, make one list, of which every group of blocks takes
// a part of equal cost: beginning and ending an item costs as much as kItemCost tiles, wherever it
// is cut, so small ends are not cut off (the scheduler of FlashMLA); and no item is cut where
// groups that take whole ones are about as quick. A group is one block; where most sequences have
// more than kLatentRows query vectors, it is two that read the same tiles at the same time, each
// for its half of the item.
//
// With LatentShape::whole no item is divided, so that a row's result does not depend on the others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace skiff::cuda {

constexpr int kLatentTile = 64;  // positions
constexpr int kLatentRows = 64;  // query vectors of a block
constexpr int kItemCost = 3;
constexpr int kMaxLatentHeads = 128;  // so that one item has all heads of a row

struct LatentShape {
  int heads = 0;
  int blocks = 0;
  bool whole = false;
  bool skips = false;  // sequences of which expands() is true have no items (expand_plan.h)
  bool operator==(const LatentShape&) const = default;
};

struct LatentItem {
  int32_t seq, first, count;    // `first` query vector, and how many
  int32_t kv_len;               // context of the last one's row
  int32_t tiles, base;          // tiles of the context, and of all earlier items
  int32_t stored;               // positions [0, stored) were stored by earlier steps
  int32_t first_group, groups;  // the groups that share its tiles
  int32_t unused[3];
};

// Tiles [begin, end) of the list, the first of them of item `item`.
struct LatentShare {
  int32_t item, begin, end, unused;
};

struct LatentHead {
  int32_t total;  // number of tiles of all items
  int32_t width;  // blocks of a group
  int32_t items, cut;
  int32_t vectors;  // query vectors from here on are padding
  int32_t widest;   // query vectors of the largest item; with `whole` as many as may be
  int32_t unused[2];
};

// The memory of a plan: head, shares of the groups, the numbers of the items that several groups
// share, items.
struct LatentLayout {
  int blocks = 0, max_items = 0;

  size_t shares() const { return sizeof(LatentHead); }
  size_t cut() const { return shares() + static_cast<size_t>(blocks) * sizeof(LatentShare); }
  size_t items() const { return cut() + (static_cast<size_t>(blocks) + 3) / 4 * 16; }
  size_t bytes() const {
    return (items() + static_cast<size_t>(max_items) * sizeof(LatentItem) + 63) / 64 * 64;
  }
};
// A layout that holds every plan of steps within these limits, for up to kMaxLatentHeads heads.
LatentLayout latent_layout(int blocks, int max_seqs, int max_tokens);

// Writes the plan of a step into `memory` (layout.bytes(), aligned to 16). row_start has one entry
// more than kv_len. Bytes up to the returned size are in use.
size_t make_latent_plan(const LatentShape& shape, std::span<const int32_t> row_start,
                        std::span<const int32_t> kv_len, const LatentLayout& layout,
                        std::byte* memory);

}  // namespace skiff::cuda
