#include "ops/cuda/quant/atoms.h"

namespace skiff::cuda {
namespace {

std::optional<Codes> codes_of(const WeightFormat& f) {
  const bool integers = !f.input || (f.input->dtype == DType::kI8 &&
                                     f.input->scales != InputFormat::kGroups && !f.zero);
  if (integers && (f.dtype == DType::kI4 || f.dtype == DType::kU4)) return Codes::kFour;
  if (integers && f.dtype == DType::kI8) return Codes::kEight;
  if (f.dtype == DType::kF8E4M3 && !f.input) return Codes::kFloat8;
  if (f.dtype == DType::kF8E4M3 && f.input->dtype == DType::kF8E4M3) return Codes::kFloat8Held;
  return {};
}

// Groups of a chunk; -1: columns of a group would straddle chunks.
int groups_of(const WeightFormat& f) {
  if (f.block_in == 0) return 0;
  if (f.block_in % kAtomWidth == 0) return 1;
  if (f.block_in == 64) return 2;
  return f.block_in == 32 ? 4 : -1;
}

// The numbers of groups that kernels are compiled for: more than needed repeat scales.
int compiled_groups(Codes codes, int groups) {
  if (groups < 0) return groups;
  switch (codes) {
    case Codes::kFour:
      return groups;
    case Codes::kEight:
      return groups == 0 ? 0 : 4;
    case Codes::kFloat8:
    case Codes::kFloat8Held:
      break;
  }
  return groups <= 1 ? groups : -1;
}

std::optional<AtomScale> scale_of(const WeightFormat& f, int groups) {
  if (groups == 0) return AtomScale::kRowF32;
  if (f.block_out == 0 || (f.block_out > 1 && f.block_out % kAtomHeight == 0))
    return AtomScale::kAtomF32;
  if (f.block_out != 1) return {};
  if (f.scale == DType::kBF16) return AtomScale::kRowBF16;
  if (f.scale == DType::kF16) return AtomScale::kRowF16;
  return AtomScale::kRowF32;
}

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

std::optional<AtomFormat> atom_format(const WeightFormat& f) {
  if (!f.quantized() || !is_float(*f.scale)) return {};
  const std::optional<Codes> codes = codes_of(f);
  if (!codes) return {};
  const int groups = compiled_groups(*codes, groups_of(f));
  if (groups < 0) return {};
  const std::optional<AtomScale> scale = scale_of(f, groups);
  if (!scale) return {};
  if (f.zero && (*codes != Codes::kFour || is_float(*f.zero))) return {};
  return AtomFormat{
      .codes = *codes, .groups = groups, .scale = *scale, .zeros = f.zero.has_value()};
}

AtomShape atom_shape(const AtomFormat& format, int64_t rows, int64_t in) {
  constexpr int64_t kPaddedRows = int64_t{kAtomHeight} * kPaddedAtoms;
  return {.format = format,
          .atoms = (rows + kPaddedRows - 1) / kPaddedRows * kPaddedAtoms,
          .chunks = (in + kAtomWidth - 1) / kAtomWidth};
}

}  // namespace skiff::cuda
