#include "ops/cuda/mla/expand_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ops/cuda/mla/plan.h"

namespace skiff::cuda {
namespace {

struct Step {
  std::vector<int32_t> row_start{0}, kv_len;
  Step& add(int cached, int rows, int times = 1) {
    for (; times > 0; --times) {
      row_start.push_back(row_start.back() + rows);
      kv_len.push_back(cached + rows);
    }
    return *this;
  }
};

int tiles_of(int n) { return (n + kExpandTile - 1) / kExpandTile; }

// Every row is in exactly one tile, or in exactly one run; a tile knows its row's context, and
// contexts lie apart in whole tiles.
void expect_covers(const Step& step) {
  std::vector<int> times(static_cast<size_t>(step.row_start.back()));
  for (const ExpandPass& pass : make_expand_passes(step.row_start, step.kv_len)) {
    EXPECT_GT(pass.spans.count, 0);
    EXPECT_LE(pass.spans.count, kMaxExpandSpans);
    EXPECT_LE(pass.tiles, kMaxExpandTiles);
    EXPECT_GE(expanded_heads(pass.spans.positions), 1);
    int at = 0, longest = 1 << 30;
    for (int i = 0; i < pass.spans.count; ++i) {
      const ExpandSpan& span = pass.spans.span[i];
      EXPECT_EQ(span.at, at);
      at += tiles_of(span.kv_len) * kExpandTile;
    }
    EXPECT_EQ(pass.spans.positions, at);
    for (int i = 0; i < pass.tiles; ++i) {
      const ExpandSpan& span = pass.spans.span[pass.tile[i].span];
      const auto s = static_cast<size_t>(span.seq);
      const int first = pass.tile[i].tile * kExpandTile;
      const int last = std::min(first + kExpandTile, span.rows);
      ASSERT_LT(first, span.rows);
      for (int r = first; r < last; ++r)
        ++times.at(static_cast<size_t>(span.row) + static_cast<size_t>(r));
      const int context = span.kv_len - span.rows + last;
      EXPECT_EQ(context, step.kv_len[s] - (step.row_start[s + 1] - (span.row + last)));
      EXPECT_LE(context, longest);
      longest = context;
    }
  }
  int32_t end = -1;
  for (const RowRun& run : absorbed_runs(step.row_start, step.kv_len)) {
    EXPECT_GT(run.row, end);  // else the run before would be longer
    end = run.row + run.rows;
    for (int32_t r = run.row; r < end; ++r) ++times[static_cast<size_t>(r)];
  }
  EXPECT_EQ(std::ranges::count(times, 1), step.row_start.back());
}

TEST(ExpandPlan, CoversEveryRow) {
  expect_covers({});
  expect_covers(Step().add(9, 0));
  expect_covers(Step().add(100, 1).add(0, 300).add(50, 4).add(7, 1).add(0, 128).add(1000, 200));
  expect_covers(Step().add(0, 200, 100));
  expect_covers(Step().add(0, 3000, 7).add(40000, 5000));
  expect_covers(Step().add(1000, 70000).add(0, 512));  // more tiles than a pass has
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    Step step;
    for (unsigned s = 0; s < 1 + random() % 60; ++s)
      step.add(static_cast<int>(random() % 3000),
               static_cast<int>(random() % (random() % 2 ? 5 : 900)));
    expect_covers(step);
  }
}

// Few rows are never computed so: a recorded step has only such sequences, of any lengths.
TEST(ExpandPlan, FewRowsStayAbsorbed) {
  for (const int rows : {0, 1, 4, 100})
    for (const int cached : {0, 1, 1000, 100000}) EXPECT_FALSE(expands(rows, cached + rows));
  EXPECT_TRUE(expands(128, 128));
  EXPECT_FALSE(expands(290, 100290));
  EXPECT_TRUE(expands(310, 100310));
  EXPECT_FALSE(expands(5000, 2000000));  // one head does not fit
}

TEST(ExpandPlan, ScratchHoldsWhatItSays) {
  for (const int64_t positions : {128, 1024, 8192, 16384, 32768, 131072, 163840}) {
    const auto bytes = [&](int64_t heads) {
      return 256 + positions * 128 + std::min<int64_t>(positions, kExpandPiece) * 1024 +
             heads * positions * 512;
    };
    const int heads = expanded_heads(positions);
    EXPECT_GE(heads, 1);
    EXPECT_LE(bytes(heads), static_cast<int64_t>(kExpandScratch));
    EXPECT_GT(bytes(heads + 1), static_cast<int64_t>(kExpandScratch));
  }
}

// The absorbed plan has the other sequences' rows, and only these.
TEST(ExpandPlan, AbsorbedPlanSkips) {
  const Step step = Step().add(10, 1).add(0, 400).add(70, 3).add(0, 0).add(20, 900);
  for (const bool skips : {false, true}) {
    const LatentShape shape = {.heads = 16, .blocks = 8, .skips = skips};
    const LatentLayout layout = latent_layout(8, 5, step.row_start.back());
    struct alignas(16) Line {
      std::byte bytes[16];
    };
    std::vector<Line> memory(layout.bytes() / 16);
    auto* bytes = reinterpret_cast<std::byte*>(memory.data());
    make_latent_plan(shape, step.row_start, step.kv_len, layout, bytes);
    const auto* head = reinterpret_cast<const LatentHead*>(bytes);
    const auto* items = reinterpret_cast<const LatentItem*>(bytes + layout.items());
    int vectors = 0;
    for (int i = 0; i < head->items; ++i) {
      vectors += items[i].count;
      EXPECT_TRUE(!skips || items[i].seq == 0 || items[i].seq == 2) << items[i].seq;
    }
    EXPECT_EQ(vectors, 16 * (skips ? 4 : step.row_start.back()));
    EXPECT_EQ(head->vectors, 16 * step.row_start.back());
  }
}

}  // namespace
}  // namespace skiff::cuda
