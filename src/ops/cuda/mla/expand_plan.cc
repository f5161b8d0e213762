#include "ops/cuda/mla/expand_plan.h"

#include <algorithm>

#include "base/check.h"

namespace skiff::cuda {
namespace {

// Fewer rows do not fill a tile.
constexpr int kLeastRows = 128;
// Operations that a head saves for each pair of a row and a position, and that it takes to expand a
// position. Gathering and expanding runs at a lower rate, and a few tiles of rows do not fill the
// device: after 8,192 positions on an H200 the forms are as fast as each other with 235 rows of 128
// heads, and with 360 rows of 16.
constexpr double kSaved = 2 * (576 + 512) - 2 * (192 + 128);
constexpr double kExpanding = 1.75 * 2 * 512 * (128 + 128);
// Small contexts share a pass up to so many positions.
constexpr int kPassPositions = 8192;
// The bytes that a position takes: its rotated key, its latent, and a head's key and value.
constexpr size_t kRopeBytes = 128, kLatentBytes = 1024, kHeadBytes = 512;

int tiles_of(int n) { return (n + kExpandTile - 1) / kExpandTile; }

bool fits(const ExpandPass& pass, const ExpandSpan& span) {
  return pass.spans.count < kMaxExpandSpans &&
         pass.tiles + tiles_of(span.rows) <= kMaxExpandTiles &&
         pass.spans.positions + tiles_of(span.kv_len) * kExpandTile <= kPassPositions;
}

void add(std::vector<ExpandPass>& passes, ExpandSpan span) {
  if (passes.empty() || !fits(passes.back(), span)) passes.emplace_back();
  ExpandPass& pass = passes.back();
  span.at = pass.spans.positions;
  for (int t = 0; t < tiles_of(span.rows); ++t)
    pass.tile[pass.tiles++] = {static_cast<uint16_t>(pass.spans.count), static_cast<uint16_t>(t)};
  pass.spans.span[pass.spans.count++] = span;
  pass.spans.positions += tiles_of(span.kv_len) * kExpandTile;
}

void sort_tiles(ExpandPass& pass) {
  const auto context = [&](const ExpandTile& t) {
    const ExpandSpan& span = pass.spans.span[t.span];
    return span.kv_len - span.rows + std::min((t.tile + 1) * kExpandTile, span.rows);
  };
  std::stable_sort(
      pass.tile, pass.tile + pass.tiles,
      [&](const ExpandTile& a, const ExpandTile& b) { return context(a) > context(b); });
}

}  // namespace

int expanded_heads(int64_t positions) {
  const auto n = static_cast<size_t>(positions);
  const size_t others =
      kExpandCounterBytes + n * kRopeBytes + std::min<size_t>(n, kExpandPiece) * kLatentBytes;
  if (n == 0 || others > kExpandScratch) return 0;
  return static_cast<int>((kExpandScratch - others) / (n * kHeadBytes));
}

bool expands(int rows, int kv_len) {
  if (rows < kLeastRows || expanded_heads(int64_t{tiles_of(kv_len)} * kExpandTile) == 0)
    return false;
  const double cached = kv_len - rows, pairs = rows * (cached + 0.5 * rows);
  return pairs * kSaved > cached * kExpanding;
}

std::vector<ExpandPass> make_expand_passes(std::span<const int32_t> row_start,
                                           std::span<const int32_t> kv_len) {
  SKIFF_CHECK(row_start.size() == kv_len.size() + 1);
  std::vector<ExpandPass> passes;
  constexpr int kMost = kMaxExpandTiles * kExpandTile;
  for (size_t s = 0; s < kv_len.size(); ++s) {
    const int rows = row_start[s + 1] - row_start[s];
    if (!expands(rows, kv_len[s])) continue;
    for (int first = 0; first < rows; first += kMost) {
      const int n = std::min(kMost, rows - first);
      add(passes, {.seq = static_cast<int32_t>(s),
                   .row = row_start[s] + first,
                   .rows = n,
                   .kv_len = kv_len[s] - rows + first + n,
                   .at = 0});
    }
  }
  for (ExpandPass& pass : passes) sort_tiles(pass);
  return passes;
}

std::vector<RowRun> absorbed_runs(std::span<const int32_t> row_start,
                                  std::span<const int32_t> kv_len) {
  std::vector<RowRun> runs;
  for (size_t s = 0; s < kv_len.size(); ++s) {
    const int32_t row = row_start[s], rows = row_start[s + 1] - row;
    if (rows == 0 || expands(rows, kv_len[s])) continue;
    if (!runs.empty() && runs.back().row + runs.back().rows == row)
      runs.back().rows += rows;
    else
      runs.push_back({row, rows});
  }
  return runs;
}

}  // namespace skiff::cuda
