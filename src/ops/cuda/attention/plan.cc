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
  int back;

  void add_share(int seq, int row, int rows, int kv_len, int stored) {
    SKIFF_CHECK(head->shares < layout.max_shares);
    const int seen = shape.window > 0 ? std::max(0, kv_len - back - rows + 1 - shape.window) : 0;
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
    if (!is_prefilled(shape, rows)) {
      const int per_share = std::max(1, kPackedRows / shape.group);
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

// Walks over the list of a plan: the place of its `at`-th tile (or piece), or of the first piece
// that begins at its `tile`-th tile or later. Both only grow.
class ListWalk {
 public:
  ListWalk(const PlanHead& head, const DecodeShare* shares, const PlanShape& shape)
      : head_(head), shares_(shares), shape_(shape) {}

  BlockBegin at(int at) {
    while (share_ < head_.shares && at >= end()) next();
    return {at, share_};
  }
  BlockBegin at_tile(int64_t tile) {
    while (share_ < head_.shares && tile > last_begin()) next();
    if (share_ == head_.shares) return {head_.total, share_};
    const DecodeShare& s = shares_[share_];
    const int64_t in_share = std::max<int64_t>(tile - tiles_, 0);
    const auto kv_head = static_cast<int>(in_share / s.tiles);
    int piece = 0;
    for (const auto in_head = static_cast<int>(in_share % s.tiles); begin(s, piece) < in_head;)
      ++piece;  // the next head's first one after the last
    return {s.base + kv_head * units(s, shape_.piece) + piece, share_};
  }
  // The tiles before a place where a block begins.
  int64_t tiles_before(const BlockBegin& place) {
    while (share_ < place.share) next();
    if (share_ == head_.shares) return tiles_;
    const DecodeShare& s = shares_[share_];
    const int pieces = units(s, shape_.piece), in_share = place.at - s.base;
    return tiles_ + int64_t{s.tiles} * (in_share / pieces) + begin(s, in_share % pieces);
  }

 private:
  int end() const {
    return shares_[share_].base + units(shares_[share_], shape_.piece) * shape_.kv_heads;
  }
  // The first tile of a head's piece; all tiles for what comes after the last.
  int begin(const DecodeShare& s, int piece) const {
    const int index = piece_of(s.first_tile, shape_.piece) + piece;
    return std::clamp(piece_begin(index, shape_.piece) - s.first_tile, 0, s.tiles);
  }
  // The tile at which the last piece of the last head of the share begins.
  int64_t last_begin() const {
    const DecodeShare& s = shares_[share_];
    return tiles_ + int64_t{s.tiles} * (shape_.kv_heads - 1) + begin(s, units(s, shape_.piece) - 1);
  }
  void next() { tiles_ += int64_t{shares_[share_++].tiles} * shape_.kv_heads; }

  const PlanHead& head_;
  const DecodeShare* shares_;
  const PlanShape& shape_;
  int share_ = 0;
  int64_t tiles_ = 0;  // the tiles of all heads of earlier shares
};

// Finds where each block begins, by `place`, a function of a block that is called in order.
template <class Place>
void deal_by(Place place, int blocks, BlockBegin* begins) {
  for (int b = 0; b <= blocks; ++b) begins[b] = place(b);
}
// The most tiles of a block where blocks begin so.
template <class Place>
int64_t most_tiles(Place place, int blocks, ListWalk walk) {
  int64_t most = 0, before = 0;
  for (int b = 0; b <= blocks; ++b) {
    const int64_t tiles = walk.tiles_before(place(b));
    most = std::max(most, tiles - before);
    before = tiles;
  }
  return most;
}

// Pieces differ in length, so equal numbers of them may be unequal work. Where they are not, a head
// is more often one block's, and nothing of it has to be folded.
void deal(const PlanHead& head, const DecodeShare* shares, const PlanShape& shape,
          BlockBegin* begins) {
  ListWalk walk(head, shares, shape);  // each use begins with a copy
  const auto by_count = [&head, walk](int b) mutable {
    return walk.at(static_cast<int>(std::min<int64_t>(int64_t{b} * head.per_block, head.total)));
  };
  if (shape.piece == 0 || head.total <= shape.blocks)
    return deal_by(by_count, shape.blocks, begins);
  int64_t tiles = 0;
  for (int s = 0; s < head.shares; ++s) tiles += int64_t{shares[s].tiles} * shape.kv_heads;
  const auto by_tiles = [tiles, &shape, walk](int b) mutable {
    return walk.at_tile((tiles * b + shape.blocks - 1) / shape.blocks);
  };
  if (most_tiles(by_count, shape.blocks, walk) <= most_tiles(by_tiles, shape.blocks, walk))
    deal_by(by_count, shape.blocks, begins);
  else
    deal_by(by_tiles, shape.blocks, begins);
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
                 std::span<const int32_t> kv_len, const PlanLayout& layout, std::byte* memory,
                 int back) {
  SKIFF_CHECK(row_start.size() == kv_len.size() + 1);
  SKIFF_CHECK(shape.blocks > 0 && shape.blocks <= layout.blocks);
  auto* head = reinterpret_cast<PlanHead*>(memory);
  *head = {};
  head->rows_end = row_start.back();
  auto* tiles = reinterpret_cast<PrefillTile*>(memory + layout.prefill());
  Writer writer = {shape, layout, head, reinterpret_cast<DecodeShare*>(memory + layout.shares()),
                   tiles, back};
  for (size_t s = 0; s < kv_len.size(); ++s) {
    writer.add(static_cast<int>(s), row_start[s], row_start[s + 1] - row_start[s], kv_len[s]);
  }
  head->per_block = std::max(1, (head->total + shape.blocks - 1) / shape.blocks);
  head->undivided = shape.piece > 0 && head->total > shape.parts;
  deal(*head, writer.shares, shape, reinterpret_cast<BlockBegin*>(memory + layout.begins()));
  std::stable_sort(tiles, tiles + head->prefill_tiles,
                   [](const PrefillTile& a, const PrefillTile& b) { return a.kv_len > b.kv_len; });
  return head->prefill_tiles > 0
             ? layout.prefill() + static_cast<size_t>(head->prefill_tiles) * sizeof(PrefillTile)
             : layout.shares() + static_cast<size_t>(head->shares) * sizeof(DecodeShare);
}

}  // namespace skiff::cuda
