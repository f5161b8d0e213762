#include <immintrin.h>

#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// A tile holds 16 rows of 64 bytes. Two tiles of rows times two panels fill four accumulators,
// so each loaded tile is used twice. One row goes through the same instruction as many: other
// bf16 instructions round differently.
constexpr int kTile = 16;
constexpr int kRows = 2 * kTile;
constexpr int64_t kKBlock = 2048;
constexpr int64_t kAhead = 8192;  // bytes that a panel is prefetched ahead when it is read once

struct alignas(64) Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 to 3: sums (rows x panels); 4, 5: rows; 6, 7: panels.
void configure(int64_t rows) {
  const auto top = static_cast<uint8_t>(rows < kTile ? rows : kTile);
  const auto bottom = static_cast<uint8_t>(rows > kTile ? rows - kTile : 1);
  Config c;
  for (int i = 0; i < 8; ++i) c.row_bytes[i] = 64;
  c.rows[0] = c.rows[1] = c.rows[4] = top;
  c.rows[2] = c.rows[3] = c.rows[5] = bottom;
  c.rows[6] = c.rows[7] = kTile;
  // The intrinsic of GCC 12 claims to read eight bytes of the 64.
  asm volatile("" : : "r"(&c) : "memory");
  _tile_loadconfig(&c);
}

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
  for (int line = 0; line < kTile; ++line) _mm_prefetch(p + line * 64, _MM_HINT_T0);
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

void two_tiles(const Tile& t) {
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

}  // namespace

void gemm_bf16_amx(const GemmBlock& g) {
  const auto* a = static_cast<const uint16_t*>(g.a);
  const auto* b = static_cast<const uint16_t*>(g.b);
  const bool once = g.rows <= kRows;
  const int64_t block = once ? g.k : kKBlock;
  int64_t configured = 0;
  for (int64_t i = 0; i < g.k; i += block)
    for (int64_t r = 0; r < g.rows; r += kRows) {
      const int64_t rows = g.rows - r < kRows ? g.rows - r : kRows;
      if (rows != configured) configure(rows);
      configured = rows;
      for (int p = 0; p < g.panels; p += 2) {
        const Tile t = {a + r * g.lda + i,
                        g.lda,
                        b + p * g.panel_stride + i * kPanel,
                        g.panel_stride,
                        block < g.k - i ? block : g.k - i,
                        g.c + r * g.ldc + p * kPanel,
                        g.ldc,
                        g.add || i > 0};
        if (rows > kTile)
          two_tiles(t);
        else if (once)
          one_tile<true>(t);
        else
          one_tile<false>(t);
      }
    }
  _tile_release();
}

}  // namespace skiff::cpu
