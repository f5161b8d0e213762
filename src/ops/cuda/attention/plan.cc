#include "ops/cuda/attention/plan.h"

#include <algorithm>

#include "base/check.h"

namespace skiff::cuda {
namespace {

// Appends shares and prefill tiles, up to the capacity of the layout.
struct Writer {
  const PlanShape& shape;
  const PlanLayout& layout;
  PlanHead* head;
  DecodeShare* shares;
  PrefillTile* tiles;

  void add_share(int seq, int row, int rows, int kv_len, int stored) {
    SKIFF_CHECK(head->shares < layout.max_shares);
    const int seen = shape.window > 0 ? std::max(0, kv_len - rows + 1 - shape.window) : 0;
    const int first = seen / kTile, count = (kv_len + kTile - 1) / kTile - first;
    const DecodeShare share = {seq, row, rows, kv_len, first, count, head->total, stored};
    shares[head->shares++] = share;
    head->total += units(share, shape.piece) * shape.kv_heads;
  }
  void add_tile(int seq, int row, int rows, int kv_len) {
    SKIFF_CHECK(head->prefill_tiles < layout.max_prefill_tiles);
    tiles[head->prefill_tiles++] = {seq, row, rows, kv_len};
  }
  // Cut from the end, so that the piece with the longest context is full.
  void add(int seq, int row, int rows, int kv_len) {
    const int per_share = std::max(1, kPackedRows / shape.group);
    if (shape.piece > 0 || rows <= per_share * kMaxShares) {
      for (int r = 0; r < rows; r += per_share) {
        const int n = std::min(per_share, rows - r);
        add_share(seq, row + r, n, kv_len - rows + r + n, kv_len - rows);
      }
      return;
    }
    const int per_tile = kPrefillRows / shape.group;
    for (int end = rows; end > 0; end -= per_tile) {
      const int n = std::min(per_tile, end);
      add_tile(seq, row + end - n, n, kv_len - rows + end);
    }
  }
};

// Finds the share in which each block begins.
void deal(const PlanHead& head, const DecodeShare* shares, const PlanShape& shape,
          int32_t* block_share) {
  int share = 0;
  const auto end = [&](const DecodeShare& s) {
    return s.base + units(s, shape.piece) * shape.kv_heads;
  };
  for (int b = 0; b < shape.blocks; ++b) {
    const int64_t at = static_cast<int64_t>(b) * head.per_block;
    while (share < head.shares && at >= end(shares[share])) ++share;
    block_share[b] = share;
  }
}

}  // namespace

PlanLayout plan_layout(int blocks, int max_seqs, int max_tokens, bool pieces) {
  // A group of 9 to 16 leaves one row to a share; one of 16 leaves 8 rows to a prefill tile.
  const int most = std::max(max_tokens, 1);
  return {.blocks = blocks,
          .max_shares = pieces ? most : std::min(max_seqs * kMaxShares, most),
          .max_prefill_tiles = max_tokens / 8 + max_seqs};
}

size_t make_plan(const PlanShape& shape, std::span<const int32_t> row_start,
                 std::span<const int32_t> kv_len, const PlanLayout& layout, std::byte* memory) {
  SKIFF_CHECK(row_start.size() == kv_len.size() + 1);
  SKIFF_CHECK(shape.blocks > 0 && shape.blocks <= layout.blocks);
  auto* head = reinterpret_cast<PlanHead*>(memory);
  *head = {};
  head->rows_end = row_start.back();
  auto* tiles = reinterpret_cast<PrefillTile*>(memory + layout.prefill());
  Writer writer = {shape, layout, head, reinterpret_cast<DecodeShare*>(memory + layout.shares()),
                   tiles};
  for (size_t s = 0; s < kv_len.size(); ++s) {
    writer.add(static_cast<int>(s), row_start[s], row_start[s + 1] - row_start[s], kv_len[s]);
  }
  head->per_block = std::max(1, (head->total + shape.blocks - 1) / shape.blocks);
  head->undivided = shape.piece > 0 && head->total > shape.parts;
  deal(*head, writer.shares, shape, reinterpret_cast<int32_t*>(memory + layout.block_share()));
  std::stable_sort(tiles, tiles + head->prefill_tiles,
                   [](const PrefillTile& a, const PrefillTile& b) { return a.kv_len > b.kv_len; });
  return head->prefill_tiles > 0
             ? layout.prefill() + static_cast<size_t>(head->prefill_tiles) * sizeof(PrefillTile)
             : layout.shares() + static_cast<size_t>(head->shares) * sizeof(DecodeShare);
}

}  // namespace skiff::cuda
