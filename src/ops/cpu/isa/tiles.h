// ops/cpu/isa/tiles.h -- the shapes of AMX tiles in products of up to 32 rows and two panels.
#pragma once
#include <stdint.h>

#include "ops/cpu/isa/intrinsics.h"

namespace skiff::cpu {
namespace {

// A tile holds 16 rows of 64 bytes. Two tiles of rows times two panels fill four accumulators, so
// each loaded tile is used twice.
constexpr int kTile = 16;
constexpr int kTileRows = 2 * kTile;
constexpr int kTileBytes = 64;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 4 and 5 hold up to kTile rows each, 6 and 7 panels, 0 and 1 the sums of the `top` rows
// times both panels, 2 and 3 those of the `bottom` ones. All tiles become zero.
inline void configure_tiles(int64_t top, int64_t bottom) {
  TileConfig c;
  for (int i = 0; i < 8; ++i) c.row_bytes[i] = kTileBytes;
  c.rows[0] = c.rows[1] = c.rows[4] = static_cast<uint8_t>(top);
  c.rows[2] = c.rows[3] = c.rows[5] = static_cast<uint8_t>(bottom);
  c.rows[6] = c.rows[7] = kTile;
  // The intrinsic of GCC 12 claims to read eight bytes of the 64.
  asm volatile("" : : "r"(&c) : "memory");
  _tile_loadconfig(&c);
}

// Up to kTileRows rows; the bottom is of use where they are more than kTile.
inline void configure_tiles(int64_t rows) {
  configure_tiles(rows < kTile ? rows : kTile, rows > kTile ? rows - kTile : 1);
}

}  // namespace
}  // namespace skiff::cpu
