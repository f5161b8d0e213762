// ops/cuda/quant/packed_value.cuh -- the elements of a packed weight (atoms.h), one at a time, for
// kernels that need not be fast.
#pragma once
#include "ops/cuda/quant/atom_args.cuh"
#include "ops/cuda/quant/codes.cuh"

namespace skiff::cuda::atoms {

// The scale of an element in atom `at`, group `group` of its chunk.
__device__ __forceinline__ float scale_at(const AtomArgs& a, const std::byte* at, int row,
                                          int group) {
  const std::byte* scales = at + a.scales_at;
  const int index = group * kAtomHeight + row % kAtomHeight;
  switch (a.scale) {
    case AtomScale::kRowBF16:
      return float_at(scales, DType::kBF16, index);
    case AtomScale::kRowF16:
      return float_at(scales, DType::kF16, index);
    case AtomScale::kRowF32:
      return float_at(scales, DType::kF32, index);
    case AtomScale::kAtomF32:
      break;
  }
  return float_at(scales, DType::kF32, group);
}

// The value of element (row, column) of a matrix of a packed stack.
__device__ inline float value_at(const AtomArgs& a, const AtomFormat& format, int expert, int row,
                                 int column) {
  const int chunk = column / kAtomWidth, within = column % kAtomWidth;
  const std::byte* at = a.atoms + expert * a.matrix_bytes + chunk * a.chunk_bytes +
                        int64_t{row / kAtomHeight} * a.atom_bytes;
  const AtomPlace place = atom_place(format.codes, row % kAtomHeight, within);
  const int byte = static_cast<int>(at[place.byte]);
  const int group = format.groups == 0 ? 0 : within / (kAtomWidth / format.groups);
  const float scale =
      format.groups == 0 ? a.row_scales[expert * a.padded_rows + row] : scale_at(a, at, row, group);
  if (format.codes == Codes::kFloat8 || format.codes == Codes::kFloat8Held)
    return scale * value_of_float8(byte);
  if (format.codes == Codes::kEight) return scale * static_cast<float>(static_cast<int8_t>(byte));
  const int code = (byte >> place.bit & 15) - static_cast<int>(a.fixed_zero);
  if (!a.zeros) return scale * static_cast<float>(code);
  const int zero = static_cast<int>(at[a.zeros_at + group * kAtomHeight + row % kAtomHeight]);
  return scale * static_cast<float>(code - (a.signed_zeros ? static_cast<int8_t>(zero) : zero));
}

}  // namespace skiff::cuda::atoms
