#include "ops/cuda/quant/atoms.h"

#include <gtest/gtest.h>

#include <set>

namespace skiff::cuda {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

// Every element has a place of its own, and together they fill the bytes before the scales.
TEST(Atoms, ElementsFillTheirBytes) {
  for (const Codes codes : {Codes::kFour, Codes::kEight, Codes::kFloat8, Codes::kFloat8Held}) {
    const AtomFormat format = {.codes = codes};
    std::set<std::pair<int, int>> places;
    for (int row = 0; row < kAtomHeight; ++row)
      for (int column = 0; column < kAtomWidth; ++column) {
        const AtomPlace p = atom_place(codes, row, column);
        EXPECT_GE(p.byte, 0);
        EXPECT_LT(p.byte, format.scales_at());
        EXPECT_EQ(p.bit % format.element_bits(), 0);
        places.insert({p.byte, p.bit});
      }
    EXPECT_EQ(places.size(), size_t{kAtomHeight} * kAtomWidth);
  }
}

// Lane l of a warp has elements of row l / 4 only, 16 bytes at a time.
TEST(Atoms, ALaneHasOneRow) {
  for (const Codes codes : {Codes::kFour, Codes::kEight, Codes::kFloat8, Codes::kFloat8Held})
    for (int row = 0; row < kAtomHeight; ++row)
      for (int column = 0; column < kAtomWidth; ++column) {
        const int lane = atom_place(codes, row, column).byte % 512 / 16;
        EXPECT_EQ(lane / 4, row);
        const int group = codes == Codes::kFloat8Held ? column % 16 / 4 : column % 8 / 2;
        EXPECT_EQ(lane % 4, group);
      }
}

TEST(Atoms, FormatsThatArePacked) {
  const auto groups = [](const WeightFormat& f) {
    const std::optional<AtomFormat> packed = atom_format(f);
    return packed ? packed->groups : -1;
  };
  EXPECT_EQ(groups({DType::kI8, 1, 0, kF32}), 0);
  EXPECT_EQ(groups({DType::kI8, 1, 128, kBF16}), 4);  // repeats scales
  EXPECT_EQ(groups({DType::kI4, 1, 64, kBF16}), 2);
  EXPECT_EQ(groups({DType::kI4, 1, 32, kBF16}), 4);
  EXPECT_EQ(groups({DType::kI4, 1, 256, kBF16}), 1);
  EXPECT_EQ(groups({DType::kF8E4M3, 128, 128, kF32}), 1);
  EXPECT_EQ(groups({DType::kF8E4M3, 0, 0, kF32}), 0);
  EXPECT_EQ(groups({DType::kI4, 1, 48, kBF16}), -1);
  EXPECT_EQ(groups({DType::kI8, 1, 16, kBF16}), -1);
  EXPECT_EQ(groups({DType::kI4, 3, 128, kBF16}), -1);  // blocks that atoms would straddle
  EXPECT_EQ(groups({DType::kU4, 1, 32, kF32, kF32}), -1);
  EXPECT_EQ(groups({kBF16}), -1);
}

// Matrices are padded to 128 rows and 128 columns; scales are aligned to 16 bytes.
TEST(Atoms, SizesOfMatrices) {
  const AtomFormat format = *atom_format({DType::kI4, 1, 128, kBF16});
  EXPECT_EQ(format.bytes(), 512 + 16);
  const AtomShape shape = atom_shape(format, 130, 257);
  EXPECT_EQ(shape.atoms, 32);
  EXPECT_EQ(shape.chunks, 3);
  EXPECT_EQ(shape.matrix_bytes(), 32 * 3 * 528);
  EXPECT_EQ(shape.row_scales(), 0);
  const AtomFormat rows = *atom_format({DType::kI8, 1, 0, kBF16});
  EXPECT_EQ(rows.bytes(), 1024);
  EXPECT_EQ(atom_shape(rows, 130, 257).row_scales(), 256);
  const AtomFormat zeros = *atom_format({DType::kU4, 1, 64, DType::kF16, DType::kU4});
  EXPECT_EQ(zeros.bytes(), 512 + 2 * 8 * 2 + 2 * 8);
}

}  // namespace
}  // namespace skiff::cuda
