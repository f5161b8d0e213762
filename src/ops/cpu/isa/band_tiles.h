// ops/cpu/isa/band_tiles.h -- AMX products of at most kTile rows, which take longer to read codes
// than to multiply them. A band is read once, from front to back, as memory is fastest: some lines
// of it become a tile of each of its panels, whose sums stay in tiles.
#pragma once
#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/scaled_sums.h"
#include "ops/cpu/isa/tiles.h"

namespace skiff::cpu {
namespace {

// The tiles of a band's panels, in bytes.
struct BandTiles {
  const uint8_t* first;
  int64_t panel, line;  // from one panel to the next, and from one of its lines to the next
};

// Products of a call's rows with a band of kPanels panels. Kind is that of a PairProduct.
template <class Kind, int kPanels>
class BandProduct {
 public:
  BandProduct(const CodeRows& g, const Kind& kind, int64_t panel)
      : g_(g),
        kind_(kind),
        panel_(panel),
        codes_(reinterpret_cast<const uint8_t*>(g.b) + panel * g.panel_words * 4) {}

  void run() {
    for (int64_t i = 0; i < g_.count; ++i) {
      sum(g_.sums[i]);
      scale(g_.sums[i], g_.first && i == 0);
    }
  }

 private:
  static constexpr int64_t kLineBytes = int64_t{kPanels} * kTileBytes;
  static constexpr int64_t kTileLines = kTile / Kind::kLines;  // lines of codes
  // Lines are asked for so many bytes ahead of their use, first in a core's own cache.
  static constexpr int64_t kFar = 2048, kNear = 512;

  void sum(const CodeSum& s) {
    const auto* a = static_cast<const uint8_t*>(g_.a) + s.begin * Kind::kInputBytes;
    const uint8_t* b = codes_ + s.line * kLineBytes;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t left = s.lines; left > 0; left -= kTileLines) {
      multiply(a, tiles(b, left < kTileLines ? left : kTileLines));
      a += kTileBytes;
      b += kTileLines * kLineBytes;
    }
    _tile_stored(0, sums_[0], sizeof *sums_);
    _tile_stored(1, sums_[0] + kTile, sizeof *sums_);
    if constexpr (kPanels > 2) _tile_stored(2, sums_[0] + 2 * kTile, sizeof *sums_);
    if constexpr (kPanels > 2) _tile_stored(3, sums_[0] + 3 * kTile, sizeof *sums_);
    // GCC 12 does not know that stores of tiles write memory.
    asm volatile("" : : : "memory");
  }

  // Codes that are a tile's lines already are read where they lie.
  BandTiles tiles(const uint8_t* b, int64_t lines) {
    if (Kind::kLines == 1 && lines == kTile) {
      for (int64_t i = 0; i < kTile * kLineBytes; i += kTileBytes) ask(b + i);
      return {b, kTileBytes, kLineBytes};
    }
    const Kind kind = kind_;  // what it looks up stays in registers
    for (int64_t i = 0; i < lines; ++i, b += kLineBytes)
      for (int64_t p = 0; p < kPanels; ++p) {
        ask(b + p * kTileBytes);
        kind.write(lines_[p] + i * Kind::kLines, b + p * kTileBytes);
      }
    for (auto& panel : lines_)
      for (int64_t i = lines * Kind::kLines; i < kTile; ++i)
        _mm512_store_si512(panel[i], _mm512_setzero_si512());
    // GCC 12 does not know that loads of tiles read memory, and could move stores behind them.
    asm volatile("" : : "r"(this) : "memory");
    return {lines_[0][0], sizeof *lines_, kTileBytes};
  }
  static void ask(const uint8_t* line) {
    _mm_prefetch(reinterpret_cast<const char*>(line) + kFar, _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(line) + kNear, _MM_HINT_T0);
  }

  void multiply(const uint8_t* a, const BandTiles& b) const {
    const auto stride = static_cast<size_t>(g_.lda * Kind::kInputBytes);
    _tile_loadd(4, a, stride);
    _tile_loadd(6, b.first, b.line);
    _tile_loadd(7, b.first + b.panel, b.line);
    Kind::top();
    if constexpr (kPanels > 2) {
      _tile_loadd(5, a, stride);
      _tile_loadd(6, b.first + 2 * b.panel, b.line);
      _tile_loadd(7, b.first + 3 * b.panel, b.line);
      Kind::bottom();
    }
  }

  void scale(const CodeSum& s, bool opens) {
    for (int64_t p = 0; p < kPanels; ++p)
      add_scaled(g_, s, 0, g_.rows, panel_ + p, opens,
                 [&](int64_t r) { return kind_.value(g_, s, r, sums_[r] + p * kTile); });
  }

  const CodeRows& g_;
  const Kind& kind_;
  int64_t panel_;
  const uint8_t* codes_;
  alignas(64) uint8_t lines_[kPanels][kTile][kTileBytes];
  alignas(64) typename Kind::Sum sums_[kTile][kPanels * kTile];
};

// At most kTile rows.
template <class Kind>
void multiply_bands(const CodeRows& g, const Kind& kind) {
  configure_tiles(g.rows, g.rows);
  int64_t panel = 0;
  for (; panel + kBand <= g.panels; panel += kBand) BandProduct<Kind, kBand>(g, kind, panel).run();
  if (panel < g.panels) BandProduct<Kind, 2>(g, kind, panel).run();
  _tile_release();
}

}  // namespace
}  // namespace skiff::cpu
