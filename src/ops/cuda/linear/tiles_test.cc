// Plays the TMA copies of the streamed GEMM on weights that are packed as tiles.
#include "ops/cuda/linear/tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace skiff::cuda {
namespace {

constexpr int kStageRows = 128;  // as in the streamed GEMM

struct Shape {
  int experts, rows, in;
  int64_t elements() const { return int64_t{experts} * rows * in; }
};
constexpr Shape kShapes[] = {{1, 16, 64}, {3, 128, 128}, {2, 384, 320}, {4, 320, 192}, {2, 48, 64}};

// Element i of the packed stack is the plain index of the weight that lies there.
std::vector<int64_t> packed(const Shape& s) {
  std::vector<int64_t> to(static_cast<size_t>(s.elements()), -1);
  for (int64_t i = 0; i < s.elements(); ++i) {
    const int64_t matrix = int64_t{s.rows} * s.in, e = i / matrix, at = i % matrix;
    const int64_t index = e * matrix + tile_index(at / s.in, at % s.in, s.rows);
    EXPECT_LT(index, s.elements());
    EXPECT_EQ(to[static_cast<size_t>(index)], -1) << "two weights in one place";
    to[static_cast<size_t>(index)] = i;
  }
  return to;
}

// Copies a box of 32-bit words as TMA does: the first dimension runs fastest, and what lies outside
// of the tensor is zero (here: -1). The result counts bf16 elements.
std::vector<int64_t> copied(const std::vector<int64_t>& memory, const TileMap& map,
                            const std::array<int, 5>& box) {
  std::vector<int64_t> to;
  std::array<uint64_t, 5> at{};
  const auto copy = [&](const auto& self, size_t dim, bool inside, uint64_t bytes) -> void {
    for (uint32_t i = 0; i < map.box[dim]; ++i) {
      at[dim] = static_cast<uint64_t>(box[dim]) + i;
      const bool in = inside && at[dim] < map.size[dim];
      const uint64_t here = bytes + at[dim] * (dim == 0 ? 4 : map.stride_bytes[dim - 1]);
      if (dim > 0) {
        self(self, dim - 1, in, here);
        continue;
      }
      for (uint64_t half = 0; half < 2; ++half) to.push_back(in ? memory.at(here / 2 + half) : -1);
    }
  };
  copy(copy, 4, true, 0);
  return to;
}

// The plain index of row `row` of a stage's tile, and -1 past the end of the matrix.
int64_t row_of_stage(const Shape& s, int expert, int tile, int row, bool gated) {
  int64_t from = int64_t{tile} * kStageRows + row, end = s.rows;
  if (gated) {
    const int half = row / 8 % 2;
    from = int64_t{tile} * (kStageRows / 2) + row / 16 * int64_t{8} + row % 8;
    end = s.rows / 2;
    if (from < end) return int64_t{expert} * s.rows + half * end + from;
    return -1;
  }
  return from < end ? int64_t{expert} * s.rows + from : -1;
}

void expect_stages(const Shape& s, bool gated) {
  const std::vector<int64_t> memory = packed(s);
  const TileMap map = tile_map(s.experts, s.rows, s.in, kStageRows, gated);
  const int chunks = s.in / kAtomCols, tiles = (s.rows + kStageRows - 1) / kStageRows;
  for (int expert = 0; expert < s.experts; ++expert)
    for (int tile = 0; tile < tiles; ++tile)
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const std::vector<int64_t> stage =
            copied(memory, map, tile_box(expert, tile, chunk, chunks, kStageRows, gated));
        ASSERT_EQ(stage.size(), static_cast<size_t>(kStageRows * kAtomCols));
        for (int row = 0; row < kStageRows; ++row)
          for (int col = 0; col < kAtomCols; ++col) {
            const int64_t from = row_of_stage(s, expert, tile, row, gated);
            const int64_t want = from < 0 ? -1 : from * s.in + int64_t{chunk} * kAtomCols + col;
            // The 128-byte swizzle: address bits 4 to 6 are xored with bits 7 to 9.
            const int plain = row * 128 + col * 2, swizzled = plain ^ (plain >> 7 & 7) << 4;
            ASSERT_EQ(stage[static_cast<size_t>(swizzled / 2)], want)
                << "row " << row << " column " << col << " of tile " << tile;
          }
      }
}

TEST(Tiles, StagesAreSwizzledForWgmma) {
  for (const Shape& s : kShapes) {
    ASSERT_TRUE(fits_tiles(s.rows, s.in));
    expect_stages(s, false);
  }
}

TEST(Tiles, GatedStagesInterleaveGateAndUp) {
  for (const Shape& s : kShapes) expect_stages(s, true);
}

TEST(Tiles, StagesAreContiguous) {
  const TileMap plain = tile_map(2, 384, 320, kStageRows, false);
  EXPECT_EQ(plain.stride_bytes[0], 4 * plain.box[0]);
  EXPECT_EQ(plain.box[1], 16u);
  const TileMap gated = tile_map(2, 384, 320, kStageRows, true);
  EXPECT_EQ(gated.stride_bytes[1], 4 * gated.box[0]);
  EXPECT_EQ(gated.box[1] * gated.box[2], 16u);
}

TEST(Tiles, RefusesShapesThatNeedPadding) {
  EXPECT_FALSE(fits_tiles(24, 64));
  EXPECT_FALSE(fits_tiles(32, 96));
  EXPECT_TRUE(fits_tiles(32, 64));
}

}  // namespace
}  // namespace skiff::cuda
