#include "ops/cuda/mla/plan.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/mla/expand_plan.h"

namespace skiff::cuda {
namespace {

int tiles_of(int kv_len) { return (kv_len + kLatentTile - 1) / kLatentTile; }

// Returns the rows of a sequence that have items.
int planned_rows(const LatentShape& shape, std::span<const int32_t> row_start,
                 std::span<const int32_t> kv_len, size_t s) {
  const int rows = row_start[s + 1] - row_start[s];
  return shape.skips && expands(rows, kv_len[s]) ? 0 : rows;
}

// Returns whether most of the context is read by sequences with more query vectors than a block
// has.
bool is_wide(const LatentShape& shape, std::span<const int32_t> row_start,
             std::span<const int32_t> kv_len) {
  int64_t wide = 0, all = 0;
  for (size_t s = 0; s < kv_len.size(); ++s) {
    const int rows = planned_rows(shape, row_start, kv_len, s);
    const int tiles = rows > 0 ? tiles_of(kv_len[s]) : 0;
    all += tiles;
    if (rows * shape.heads > kLatentRows) wide += tiles;
  }
  return shape.blocks > 1 && 2 * wide > all;
}

// What it costs, in tiles, to combine the results of items that were cut: a kernel of its own,
// which takes 10 us on an H200, where a tile takes about 2.
constexpr int kCombineCost = 4;

// Deals the list to the groups, one after the other. Items are not cut where that would save less
// than it costs: sequences that are about as many as groups, with contexts about as long.
class Dealer {
 public:
  Dealer(std::span<LatentItem> items, int groups, bool whole) : items_(items), groups_(groups) {
    int64_t cost = 0;
    for (const LatentItem& item : items) cost += item.tiles + kItemCost;
    payload_ = static_cast<int>((cost + groups - 1) / groups) + kItemCost;
    slack_ = payload_ / 32;
    whole_ = whole || longest_whole() <= payload_ + kCombineCost;
  }

  LatentShare deal(int group) {
    const int begin = at_;
    LatentShare share = {static_cast<int32_t>(item_), begin, begin, 0};
    for (int left = payload_; item_ < items_.size();) {
      const int rest = items_[item_].base + items_[item_].tiles - at_;
      const bool fits = left + slack_ >= rest + kItemCost || group + 1 == groups_;
      if (fits || (whole_ && at_ == begin)) {
        take(group, rest);
        ++item_;
        left -= rest + kItemCost;
      } else {
        if (!whole_ && left > kItemCost) take(group, left - kItemCost);
        break;
      }
    }
    share.end = at_;
    return share;
  }

 private:
  // Returns the cost of the group that has most to do where no item is cut.
  int longest_whole() const {
    int longest = 0;
    size_t item = 0;
    for (int group = 0; group < groups_; ++group) {
      int cost = 0;
      for (; item < items_.size(); ++item) {
        const int more = items_[item].tiles + kItemCost;
        if (group + 1 < groups_ && cost > 0 && cost + more > payload_ + slack_) break;
        cost += more;
      }
      longest = std::max(longest, cost);
    }
    return longest;
  }

  void take(int group, int tiles) {
    LatentItem& item = items_[item_];
    if (item.groups++ == 0) item.first_group = group;
    at_ += tiles;
  }

  std::span<LatentItem> items_;
  int groups_;
  bool whole_;
  int payload_, slack_;  // a group may have a little more where it spares a cut
  size_t item_ = 0;
  int at_ = 0;  // tiles that have been given to groups
};

}  // namespace

LatentLayout latent_layout(int blocks, int max_seqs, int max_tokens) {
  // An item of 2 * kLatentRows vectors has at least one row, one of kLatentRows at least half of
  // one.
  return {.blocks = blocks, .max_items = 2 * max_tokens + max_seqs};
}

size_t make_latent_plan(const LatentShape& shape, std::span<const int32_t> row_start,
                        std::span<const int32_t> kv_len, const LatentLayout& layout,
                        std::byte* memory) {
  SKIFF_CHECK(row_start.size() == kv_len.size() + 1);
  SKIFF_CHECK(shape.blocks > 0 && shape.blocks <= layout.blocks);
  SKIFF_CHECK(shape.heads > 0 && shape.heads <= kMaxLatentHeads);
  auto* head = reinterpret_cast<LatentHead*>(memory);
  *head = {};
  head->width = is_wide(shape, row_start, kv_len) ? 2 : 1;
  head->vectors = row_start.back() * shape.heads;
  // A kernel for few vectors rounds differently, and other rows must not choose it.
  head->widest = shape.whole ? kLatentRows : 0;
  auto* items = reinterpret_cast<LatentItem*>(memory + layout.items());
  const int most = kLatentRows * head->width;
  for (size_t s = 0; s < kv_len.size(); ++s) {
    const int rows = planned_rows(shape, row_start, kv_len, s), vectors = rows * shape.heads;
    for (int v = 0; v < vectors; v += most) {
      SKIFF_CHECK(head->items < layout.max_items);
      const int count = std::min(most, vectors - v);
      const int context = kv_len[s] - rows + (v + count - 1) / shape.heads + 1;
      LatentItem& item = items[head->items++];
      item = {.seq = static_cast<int32_t>(s),
              .first = row_start[s] * shape.heads + v,
              .count = count,
              .kv_len = context,
              .tiles = tiles_of(context),
              .base = head->total,
              .stored = kv_len[s] - rows};
      head->total += item.tiles;
      head->widest = std::max(head->widest, item.count);
    }
  }
  const std::span all(items, static_cast<size_t>(head->items));
  const int groups = shape.blocks / head->width;
  Dealer dealer(all, groups, shape.whole);
  auto* shares = reinterpret_cast<LatentShare*>(memory + layout.shares());
  for (int g = 0; g < groups; ++g) shares[g] = dealer.deal(g);
  auto* cut = reinterpret_cast<int32_t*>(memory + layout.cut());
  for (int i = 0; i < head->items; ++i)
    if (items[i].groups > 1) cut[head->cut++] = i;
  return layout.items() + static_cast<size_t>(head->items) * sizeof(LatentItem);
}

}  // namespace skiff::cuda
