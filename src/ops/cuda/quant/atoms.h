// ops/cuda/quant/atoms.h -- Packing::kTiles of a quantized weight: its elements in the order in
// which the lanes of a warp feed them to the tensor cores. Pure functions without CUDA.
//
// A matrix is cut into atoms of 8 rows by 128 columns (a chunk). The atoms of one chunk follow each
// other down the rows, padded to a multiple of 16 atoms; then comes the next chunk, and the next
// matrix of a stack. So the 128 rows that a block multiplies at a time are one piece of memory, and
// those of a gated product, 64 of the gate and 64 of what it lets through, two.
//
// An atom has its elements first. Lane l of a warp has those of row l / 4 that it holds as the
// 16-row operand of mma.m16n8k16 (or of m16n8k32, where activations are e4m3, too): of each 16
// columns those at 2 * (l % 4) + {0, 1, 8, 9}; of each 32 those at 4 * (l % 4) + {0..3, 16..19}.
// It loads them 16 bytes at a time, so that elements of 4 bits are [lane][16 bytes], and those of 8
// bits [64 columns][lane][16 bytes]. Behind the elements lie the scales of the chunk's groups, and
// then their zero points. Scales and zero points of whole rows lie behind the whole weight instead.
#pragma once
#include <cstdint>
#include <optional>

#include "weights/format.h"
#include "weights/weight_shape.h"

namespace skiff::cuda {

constexpr int kAtomHeight = 8, kAtomWidth = 128;
constexpr int kPaddedAtoms = 16;  // their number in a chunk is a multiple of this

// How the bits of an element become what the tensor cores multiply.
enum class Codes : uint8_t {
  kFour,        // unsigned; kI4 is stored 8 higher
  kEight,       // two's complement
  kFloat8,      // e4m3, widened to bf16
  kFloat8Held,  // e4m3, multiplied as such by e4m3 activations
};

// How the scales in an atom are stored.
enum class AtomScale : uint8_t {
  kRowBF16,
  kRowF16,
  kRowF32,   // one for each row, for each group
  kAtomF32,  // one for the atom's rows
};

struct AtomFormat {
  Codes codes = Codes::kFour;
  int groups = 0;  // groups of a chunk, each with scales of its own: 1, 2 or 4; 0: whole rows
  AtomScale scale = AtomScale::kRowF32;
  bool zeros = false;

  constexpr int element_bits() const { return codes == Codes::kFour ? 4 : 8; }
  constexpr int scale_bytes() const {
    return scale == AtomScale::kRowF32 || scale == AtomScale::kAtomF32 ? 4 : 2;
  }
  constexpr int scales_at() const { return element_bits() * kAtomWidth * kAtomHeight / 8; }
  // Scales of a group: one for each row, or one.
  constexpr int scales_of_group() const { return scale == AtomScale::kAtomF32 ? 1 : kAtomHeight; }
  constexpr int zeros_at() const {
    return scales_at() + groups * scales_of_group() * scale_bytes();
  }
  // Zero points have a byte each. Those of whole rows lie in every chunk, too.
  constexpr int zero_groups() const { return zeros ? (groups > 0 ? groups : 1) : 0; }
  constexpr int bytes() const { return (zeros_at() + zero_groups() * kAtomHeight + 15) / 16 * 16; }
};

// The packing of a format, where there is one.
std::optional<AtomFormat> atom_format(const WeightFormat& format);

// What four-bit codes count from: those of kI4 are stored 8 higher.
constexpr unsigned fixed_zero(const WeightFormat& format) {
  return format.dtype == DType::kI4 ? 8 : 0;
}

// Sizes of a packed weight.
struct AtomShape {
  AtomFormat format;
  int64_t atoms = 0;   // atoms of a chunk
  int64_t chunks = 0;  // chunks of a matrix

  constexpr int64_t matrix_bytes() const { return atoms * chunks * format.bytes(); }
  // Scales of whole rows are float32, and padded like the atoms.
  constexpr int64_t row_scales() const { return format.groups == 0 ? atoms * kAtomHeight : 0; }
};
AtomShape atom_shape(const AtomFormat& format, int64_t rows, int64_t in);

// Says where element (row, column) of an atom lies: in which byte, and from which of its bits on.
struct AtomPlace {
  int byte = 0, bit = 0;
};
constexpr AtomPlace atom_place(Codes codes, int row, int column) {
  if (codes == Codes::kFloat8Held) {
    const int lane = row * 4 + column % 16 / 4, step = column / 32, half = column % 32 / 16;
    return {step / 2 * 512 + lane * 16 + step % 2 * 8 + half * 4 + column % 4, 0};
  }
  const int lane = row * 4 + column % 8 / 2, step = column / 16, half = column % 16 / 8;
  if (codes == Codes::kFour)
    return {lane * 16 + step / 2 * 4 + column % 2 * 2 + step % 2, half * 4};
  return {step / 4 * 512 + lane * 16 + step % 4 * 4 + column % 2 * 2 + half, 0};
}

}  // namespace skiff::cuda
