// ops/cpu/isa/pair_tiles.h -- AMX products of any number of rows and the tiles of two panels, whose
// sums stay in the first cache until they are scaled.
#pragma once
#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/tiles.h"

namespace skiff::cpu {
namespace {

constexpr int kRowsAtOnce = 128;
constexpr int kPairColumns = 2 * kTile;

// Sums of 32 bits, of rows and the columns of both panels.
template <class Sum>
struct PairSums {
  alignas(64) Sum at[kRowsAtOnce][kPairColumns];
};

// Tiles of a pair of panels. `stride` is from one of their lines to the next, in bytes.
struct PairTiles {
  const uint8_t* panel[2];
  int64_t stride, count;
  int64_t ahead = 0;  // bytes to lines that the cache is asked for, if not 0
};

// Lines that are written before they are tiles.
template <int64_t kTiles>
struct PairLines {
  alignas(64) uint8_t panel[2][kTiles * kTile][kTileBytes];

  // Fills the last tile up from the line `count` of each panel on.
  PairTiles tiles(int64_t count) {
    const int64_t tiles = (count + kTile - 1) / kTile;
    for (auto& lines : panel)
      for (int64_t i = count; i < tiles * kTile; ++i)
        for (uint8_t& byte : lines[i]) byte = 0;
    // GCC 12 does not know that loads of tiles read memory, and could move stores behind them.
    asm volatile("" : : "r"(this) : "memory");
    return {{panel[0][0], panel[1][0]}, kTileBytes, tiles};
  }
};

// Rows of an operand, whose tiles take kTileBytes of each at a time.
struct OperandRows {
  const uint8_t* first;
  int64_t stride, count;  // the stride is in bytes
};

// Asks for the lines of the next band that lie where this tile does, so that memory does not rest
// while this band is multiplied out of the cache.
inline void prefetch_behind(const uint8_t* tile, const PairTiles& b) {
  for (int i = 0; i < kTile; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(tile) + i * b.stride + b.ahead, _MM_HINT_T1);
}

// Up to kTile rows or, with kBoth, more, up to kTileRows. Kind names the instruction.
template <class Kind, bool kBoth, class Sum>
void multiply_rows(const OperandRows& a, const PairTiles& b, Sum (*sums)[kPairColumns], bool add,
                   bool ask) {
  constexpr int kStride = sizeof sums[0];
  const uint8_t* bottom = a.first + kTile * a.stride;
  if (add) {
    _tile_loadd(0, sums[0], kStride);
    _tile_loadd(1, sums[0] + kTile, kStride);
    if constexpr (kBoth) _tile_loadd(2, sums[kTile], kStride);
    if constexpr (kBoth) _tile_loadd(3, sums[kTile] + kTile, kStride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kBoth) _tile_zero(2);
    if constexpr (kBoth) _tile_zero(3);
  }
  for (int64_t i = 0; i < b.count; ++i) {
    const int64_t line = i * kTile * b.stride;
    if (ask) prefetch_behind(b.panel[0] + line, b);
    if (ask) prefetch_behind(b.panel[1] + line, b);
    _tile_loadd(4, a.first + i * kTileBytes, a.stride);
    _tile_loadd(6, b.panel[0] + line, b.stride);
    if constexpr (kBoth) _tile_loadd(5, bottom + i * kTileBytes, a.stride);
    _tile_loadd(7, b.panel[1] + line, b.stride);
    Kind::top();
    if constexpr (kBoth) Kind::bottom();
  }
  _tile_stored(0, sums[0], kStride);
  _tile_stored(1, sums[0] + kTile, kStride);
  if constexpr (kBoth) _tile_stored(2, sums[kTile], kStride);
  if constexpr (kBoth) _tile_stored(3, sums[kTile] + kTile, kStride);
}

// Multiplies at most kRowsAtOnce rows; with `add`, sums go on. `configured` is how many rows tiles
// have now.
template <class Kind, class Sum>
void multiply(const OperandRows& a, const PairTiles& b, PairSums<Sum>& sums, bool add,
              int64_t& configured) {
  for (int64_t r = 0; r < a.count; r += kTileRows) {
    const int64_t left = a.count - r, rows = left < kTileRows ? left : kTileRows;
    if (rows != configured) configure_tiles(rows);
    configured = rows;
    const OperandRows some = {a.first + r * a.stride, a.stride, rows};
    (rows > kTile
         ? multiply_rows<Kind, true, Sum>
         : multiply_rows<Kind, false, Sum>)(some, b, sums.at + r, add, b.ahead != 0 && r == 0);
  }
}

// Rows of a call and one of its pairs of panels.
struct Part {
  int64_t row, rows, panel;
};

// Calls f(part, lines, step, ahead) for each pair of panels of some rows: where the lines of the
// pair begin, the bytes from one to the next, and those to the same lines of the next band, or 0.
template <class Do>
void for_pairs(const CodeRows& g, Do f) {
  constexpr int64_t kWidestAhead = 384 << 10;  // bytes of a band, two of which a core's cache holds
  for (int64_t row = 0; row < g.rows; row += kRowsAtOnce)
    for (int64_t panel = 0; panel < g.panels; panel += 2) {
      const LinePlace place = place_of(panel, g.panels, g.panel_words);
      const int64_t band = g.panel_words * (place.step / kPanel) * 4;
      const int64_t rows = g.rows - row < kRowsAtOnce ? g.rows - row : kRowsAtOnce;
      f(Part{row, rows, panel}, reinterpret_cast<const uint8_t*>(g.b + place.first), place.step * 4,
        row == 0 && band <= kWidestAhead ? band : 0);
    }
}

}  // namespace
}  // namespace skiff::cpu
