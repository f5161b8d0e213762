#include <immintrin.h>

#include "ops/cpu/isa/kernels.h"
#include "ops/cpu/isa/tiles.h"

namespace skiff::cpu {
namespace {

// All rows meet so many inputs of a pair of panels before the next pair. The pair lies in the first
// cache then, and that many inputs of all rows in the second, which holds less than it seems to
// where other work shares it.
constexpr int64_t kKBlock = 256;
constexpr int64_t kAhead = 8192;  // bytes that a panel is prefetched ahead when it is read once

struct Tile {
  const uint16_t* a;
  int64_t lda;
  const uint16_t* b;
  int64_t panel_stride;
  int64_t k;
  float* c;
  int64_t ldc;
  bool add;
};

void prefetch_tile(const uint16_t* b) {
  const auto* p = reinterpret_cast<const char*>(b) + kAhead;
  for (int line = 0; line < kTile; ++line) _mm_prefetch(p + int64_t{line} * 64, _MM_HINT_T0);
}

template <bool kStream>
void one_tile(const Tile& t) {
  const auto c_stride = static_cast<size_t>(t.ldc) * 4, a_stride = static_cast<size_t>(t.lda) * 2;
  if (t.add) {
    _tile_loadd(0, t.c, c_stride);
    _tile_loadd(1, t.c + kPanel, c_stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
  for (int64_t i = 0; i < t.k; i += kKStep) {
    const uint16_t* b = t.b + i * kPanel;
    if constexpr (kStream) prefetch_tile(b);
    _tile_loadd(4, t.a + i, a_stride);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kStream) prefetch_tile(b + t.panel_stride);
    _tile_loadd(7, b + t.panel_stride, 64);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, t.c, c_stride);
  _tile_stored(1, t.c + kPanel, c_stride);
}

// Lines of a pair of panels that the cache is asked for while others are multiplied.
struct Ahead {
  const uint16_t* at;
  int64_t panel_stride, lines;  // elements, and lines of each panel

  // Asks for more at once than rows need, because tiles of rows wait behind these lines, too.
  void ask() {
    constexpr int kAtOnce = 2;
    for (int n = 0; n < kAtOnce && lines > 0; ++n, --lines, at += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(at + panel_stride), _MM_HINT_T0);
    }
  }
  static constexpr int64_t kLine = int64_t{2} * kPanel;
};

void two_tiles(const Tile& t, Ahead& ahead) {
  const auto c_stride = static_cast<size_t>(t.ldc) * 4, a_stride = static_cast<size_t>(t.lda) * 2;
  float* c2 = t.c + kTile * t.ldc;
  const uint16_t* a2 = t.a + kTile * t.lda;
  if (t.add) {
    _tile_loadd(0, t.c, c_stride);
    _tile_loadd(1, t.c + kPanel, c_stride);
    _tile_loadd(2, c2, c_stride);
    _tile_loadd(3, c2 + kPanel, c_stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < t.k; i += kKStep) {
    const uint16_t* b = t.b + i * kPanel;
    ahead.ask();
    _tile_loadd(4, t.a + i, a_stride);
    _tile_loadd(6, b, 64);
    _tile_loadd(5, a2 + i, a_stride);
    _tile_loadd(7, b + t.panel_stride, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, t.c, c_stride);
  _tile_stored(1, t.c + kPanel, c_stride);
  _tile_stored(2, c2, c_stride);
  _tile_stored(3, c2 + kPanel, c_stride);
}

// Some inputs of a product.
struct Inputs {
  int64_t first, count;
};

// What comes after these inputs of a pair of panels: the same ones of the next pair, or the next
// ones of the first pair.
Ahead ahead_of(const GemmBlock& g, Inputs in, int panel) {
  const auto* b = static_cast<const uint16_t*>(g.b);
  if (panel + 2 < g.panels)
    return {b + (panel + 2) * g.panel_stride + in.first * kPanel, g.panel_stride, in.count / 2};
  const int64_t next = in.first + in.count, left = g.k - next;
  return {b + next * kPanel, g.panel_stride, (left < kKBlock ? left : kKBlock) / 2};
}

// Adds the products of some inputs. `configured` is how many rows tiles have now.
void add_inputs(const GemmBlock& g, Inputs in, int64_t& configured) {
  const auto* a = static_cast<const uint16_t*>(g.a) + in.first;
  const auto* b = static_cast<const uint16_t*>(g.b) + in.first * kPanel;
  const bool once = g.rows <= kTileRows;
  for (int p = 0; p < g.panels; p += 2) {
    Ahead ahead = ahead_of(g, in, p);
    for (int64_t r = 0; r < g.rows; r += kTileRows) {
      const int64_t rows = g.rows - r < kTileRows ? g.rows - r : kTileRows;
      if (rows != configured) configure_tiles(rows);
      configured = rows;
      const Tile t = {a + r * g.lda,
                      g.lda,
                      b + p * g.panel_stride,
                      g.panel_stride,
                      in.count,
                      g.c + r * g.ldc + int64_t{p} * kPanel,
                      g.ldc,
                      g.add || in.first > 0};
      if (rows > kTile)
        two_tiles(t, ahead);
      else if (once)
        one_tile<true>(t);
      else
        one_tile<false>(t);
    }
  }
}

}  // namespace

void gemm_bf16_amx(const GemmBlock& g) {
  // Tiles of so few rows read slower than memory.
  if (g.rows <= kFewRowsAmx) return plain_rows_amx(g);
  const int64_t block = g.rows <= kTileRows ? g.k : kKBlock;
  int64_t configured = 0;
  for (int64_t i = 0; i < g.k; i += block)
    add_inputs(g, {i, block < g.k - i ? block : g.k - i}, configured);
  _tile_release();
}

}  // namespace skiff::cpu
