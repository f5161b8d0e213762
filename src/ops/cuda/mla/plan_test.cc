#include "ops/cuda/mla/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace skiff::cuda {
namespace {

struct Step {
  std::vector<int32_t> row_start{0}, kv_len;
  Step& add(int rows, int length, int times = 1) {
    for (; times > 0; --times) {
      row_start.push_back(row_start.back() + rows);
      kv_len.push_back(length);
    }
    return *this;
  }
};

// A plan, read as the kernel reads it.
struct Plan {
  Plan(const LatentShape& shape, const Step& step)
      : layout(latent_layout(shape.blocks, static_cast<int>(step.kv_len.size()),
                             step.row_start.back())),
        memory(layout.bytes() / 16) {
    auto* bytes = reinterpret_cast<std::byte*>(memory.data());
    used = make_latent_plan(shape, step.row_start, step.kv_len, layout, bytes);
    head = reinterpret_cast<LatentHead*>(bytes);
    const auto groups = static_cast<size_t>(shape.blocks / head->width);
    shares = {reinterpret_cast<LatentShare*>(bytes + layout.shares()), groups};
    items = {reinterpret_cast<LatentItem*>(bytes + layout.items()),
             static_cast<size_t>(head->items)};
    cut = {reinterpret_cast<int32_t*>(bytes + layout.cut()), static_cast<size_t>(head->cut)};
  }
  struct alignas(16) Line {
    std::byte bytes[16];
  };
  LatentLayout layout;
  std::vector<Line> memory;
  size_t used = 0;
  LatentHead* head;
  std::span<LatentShare> shares;
  std::span<LatentItem> items;
  std::span<int32_t> cut;
};

// Every query vector is in exactly one item, with the context of its last row; every tile in
// exactly one share, which begins in the item that it names; or groups have whole
// items.
void expect_covers(const LatentShape& shape, const Step& step) {
  const Plan plan(shape, step);
  EXPECT_LE(plan.used, plan.layout.bytes());
  std::vector<int> times(static_cast<size_t>(step.row_start.back() * shape.heads));
  int total = 0;
  for (const LatentItem& item : plan.items) {
    const auto s = static_cast<size_t>(item.seq);
    EXPECT_GT(item.count, 0);
    EXPECT_LE(item.count, kLatentRows * plan.head->width);
    EXPECT_GE(item.first, step.row_start[s] * shape.heads);
    const int last_row = (item.first + item.count - 1) / shape.heads;
    EXPECT_EQ(item.kv_len, step.kv_len[s] - (step.row_start[s + 1] - 1 - last_row));
    EXPECT_EQ(item.tiles, (item.kv_len + kLatentTile - 1) / kLatentTile);
    EXPECT_EQ(item.base, total);
    EXPECT_LE(item.count, plan.head->widest);
    EXPECT_EQ(item.stored, step.kv_len[s] - (step.row_start[s + 1] - step.row_start[s]));
    total += item.tiles;
    for (int v = item.first; v < item.first + item.count; ++v) ++times[static_cast<size_t>(v)];
  }
  for (const int t : times) EXPECT_EQ(t, 1);
  EXPECT_EQ(plan.head->total, total);
  int at = 0;
  for (const LatentShare& share : plan.shares) {
    if (share.begin == share.end) continue;
    EXPECT_EQ(share.begin, at);
    const LatentItem& item = plan.items[static_cast<size_t>(share.item)];
    EXPECT_GE(share.begin, item.base);
    EXPECT_LT(share.begin, item.base + item.tiles);
    if (shape.whole) {
      EXPECT_EQ(share.begin, item.base);
    }
    at = share.end;
  }
  EXPECT_EQ(at, total);
}

TEST(LatentPlan, CoversEveryTileOnce) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const int heads = std::vector{1, 7, 16, 32, 64, 65, 128}[random() % 7];
    Step step;
    for (unsigned s = 0, n = random() % 40; s < n; ++s) {
      const int rows = static_cast<int>(random() % 3 == 0 ? random() % 200 : random() % 4);
      step.add(rows, rows + static_cast<int>(random() % 3000));
    }
    for (const int blocks : {132, 1, 7})
      for (const bool whole : {false, true})
        expect_covers({.heads = heads, .blocks = blocks, .whole = whole}, step);
  }
}

TEST(LatentPlan, BlocksOfAGroupShareContextsOfManyVectors) {
  const auto width = [](int heads, const Step& step) {
    return Plan({.heads = heads, .blocks = 132}, step).head->width;
  };
  EXPECT_EQ(width(128, Step().add(1, 4096, 128)), 2);
  EXPECT_EQ(width(32, Step().add(1, 4096, 64)), 1);
  EXPECT_EQ(width(32, Step().add(2, 4096, 64)), 1);
  EXPECT_EQ(width(32, Step().add(3, 4096, 64)), 2);
  EXPECT_EQ(width(16, Step().add(1, 4096, 64).add(500, 600)), 1);
  EXPECT_EQ(width(128, Step()), 1);
}

// The most that a group computes, in tiles, with kItemCost for each run.
int dearest(const Plan& plan) {
  int most = 0;
  for (const LatentShare& share : plan.shares) {
    int cost = 0, at = share.begin;
    for (auto i = static_cast<size_t>(share.item); at < share.end; ++i) {
      const int end = std::min(share.end, plan.items[i].base + plan.items[i].tiles);
      cost += end - at + kItemCost;
      at = end;
    }
    most = std::max(most, cost);
  }
  return most;
}

TEST(LatentPlan, GroupsHaveEqualCosts) {
  const Plan decode({.heads = 128, .blocks = 132}, Step().add(1, 4096, 128));
  EXPECT_EQ(decode.head->total, 128 * 64);
  EXPECT_EQ(dearest(decode), 2 * 67);  // two whole items, a little more than an equal part
  EXPECT_EQ(decode.head->cut, 0);
  const Plan one({.heads = 16, .blocks = 132}, Step().add(1, 131072));
  EXPECT_LE(dearest(one), 16 + 2 * kItemCost);
  EXPECT_EQ(one.head->vectors, 16);
  // The first rows of a prompt have short contexts: a group that has many of them has fewer tiles.
  const Plan prompt({.heads = 128, .blocks = 132}, Step().add(8192, 8192));
  EXPECT_LE(dearest(prompt),
            (prompt.head->total + 8192 * kItemCost) / 66 * 33 / 32 + 2 * kItemCost);
}

// About as many sequences as groups, with about as long contexts: an item that is cut makes work
// for another kernel.
TEST(LatentPlan, IsNotCutWhereThatWouldHardlySave) {
  const auto cuts = [](int heads, int sequences, int least, int most) {
    std::mt19937 random(3);
    Step step;
    for (int i = 0; i < sequences; ++i)
      step.add(1, least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1)));
    return Plan({.heads = heads, .blocks = 132}, step).head->cut;
  };
  EXPECT_EQ(cuts(128, 64, 1000, 1100), 0);
  EXPECT_EQ(cuts(32, 128, 1000, 1100), 0);
  EXPECT_EQ(cuts(32, 256, 1000, 1100), 0);
  EXPECT_GT(cuts(128, 40, 1000, 1100), 0) << "a third of the groups would do nothing";
  EXPECT_GT(cuts(128, 64, 100, 4000), 0) << "one group would take twice as long as the others";
  EXPECT_GT(cuts(32, 8, 1000, 1000), 0);
}

TEST(LatentPlan, ItemsNameTheGroupsThatShareThem) {
  const Plan plan({.heads = 32, .blocks = 132}, Step().add(1, 8192, 64));
  EXPECT_GT(plan.head->cut, 0);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const LatentItem& item = plan.items[i];
    for (int g = 0; g < 132; ++g) {
      const LatentShare& s = plan.shares[static_cast<size_t>(g)];
      const bool shares = s.begin < item.base + item.tiles && s.end > item.base;
      EXPECT_EQ(shares, g >= item.first_group && g < item.first_group + item.groups) << i;
    }
    EXPECT_EQ(item.groups > 1, std::ranges::find(plan.cut, static_cast<int>(i)) != plan.cut.end());
  }
  EXPECT_EQ(Plan({.heads = 32, .blocks = 132, .whole = true}, Step().add(1, 8192, 64)).head->cut,
            0);
}

// The kernel over 8-bit rows chooses by it, and other rows of a batch must not where results do not
// depend on them.
TEST(LatentPlan, WidestIsTheLargestItem) {
  const auto widest = [](const LatentShape& shape, const Step& step) {
    return Plan(shape, step).head->widest;
  };
  const Step decodes = Step().add(1, 8192, 3), drafts = Step().add(1, 8192, 3).add(3, 500);
  EXPECT_EQ(widest({.heads = 16, .blocks = 132}, decodes), 16);
  EXPECT_EQ(widest({.heads = 16, .blocks = 132}, drafts), 48);
  EXPECT_EQ(widest({.heads = 40, .blocks = 132}, drafts), kLatentRows);
  EXPECT_EQ(widest({.heads = 128, .blocks = 132}, decodes), 2 * kLatentRows);
  for (const Step& step : {decodes, drafts})
    EXPECT_EQ(widest({.heads = 16, .blocks = 132, .whole = true}, step), kLatentRows);
}

}  // namespace
}  // namespace skiff::cuda
