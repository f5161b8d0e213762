#include "model/formats/eight_bits.h"

#include <algorithm>

#include "base/log.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const std::byte* from = m.of(Role::kWeight)->bytes.data();
  const int64_t in = m.shape.in, out = m.shape.out;
  for (int64_t r = 0; r < region.rows; ++r) {
    const int64_t row = region.row + r;
    if (!m.shape.transposed) {
      std::memcpy(to + r * region.cols, from + row * in + region.col,
                  static_cast<size_t>(region.cols));
      continue;
    }
    for (int64_t c = 0; c < region.cols; ++c)
      to[r * region.cols + c] = from[(region.col + c) * out + row];
  }
}

void four_bits(const StoredModule& m, const Region& region, std::byte* to) {
  elements(m, region, to);
  for (int64_t i = 0; i < region.rows * region.cols; ++i)
    if (const auto e = static_cast<int8_t>(to[i]); e < -8 || e > 7)
      fail_load("tensor \"{}\": an element of output {} is {}; 4-bit integers are from -8 to 7",
                escaped(m.of(Role::kWeight)->entry->name), region.row + i / region.cols, e);
}

void one_scale(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *m.of(Role::kScale);
  std::fill_n(to, rows.count, stored_float(tensor, 0));
}

void zeros(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *m.of(Role::kZero);
  const int64_t groups = blocks_in(m.shape.in, m.format->values.block_in);
  for (int64_t i = 0; i < rows.count * groups; ++i)
    to[i] = stored<int8_t>(tensor, rows.first * groups + i);
}

constexpr Unpacking kWhole{.elements = elements, .scales = one_scale};
constexpr Unpacking kParts{.elements = elements, .scales = stored_scales};
constexpr Unpacking kFourWhole{.elements = four_bits, .scales = one_scale};
constexpr Unpacking kFourParts{.elements = four_bits, .scales = stored_scales};
constexpr Unpacking kShifted{.elements = elements, .scales = stored_scales, .zeros = zeros};

const Unpacking* unpacking_of(const EightBits& what) {
  if (what.zero) return &kShifted;
  const bool whole = what.scales == ScaleOf::kTensor;
  if (what.four) return whole ? &kFourWhole : &kFourParts;
  return whole ? &kWhole : &kParts;
}

}  // namespace

StoredFormat eight_bit_format(const EightBits& what) {
  StoredFormat f{.name = what.name,
                 .tensors = {{.role = Role::kWeight,
                              .suffixes = {".weight"},
                              .dtypes = {what.dtype == DType::kI8 ? "I8" : "F8_E4M3"},
                              .shape = shape_of_matrix},
                             {.role = Role::kScale,
                              .suffixes = what.scale_suffixes,
                              .dtypes = {"F32", "BF16", "F16"},
                              .shape = what.scales == ScaleOf::kTensor ? shape_of_one
                                       : what.flat                     ? shape_of_outputs
                                                                       : shape_of_blocks},
                             bias_rule()},
                 .values = {.dtype = what.four ? DType::kI4 : what.dtype,
                            .block_out = what.scales == ScaleOf::kBlock ? what.block_out : 1,
                            .block_in = what.scales == ScaleOf::kBlock ? what.block_in : 0,
                            .scale = DType::kF32,
                            .input = what.input},
                 .unpacking = unpacking_of(what),
                 .bits = what.four ? 4 : 8,
                 .stacks = true};
  if (what.scales == ScaleOf::kBlock) f.tensors[1].dtypes.push_back("F8_E8M0");
  if (what.zero) {
    f.values.zero = DType::kI8;
    f.tensors.push_back({.role = Role::kZero,
                         .suffixes = {".weight_zero_point"},
                         .dtypes = {"I8"},
                         .shape = shape_of_blocks});
  }
  if (what.input && what.input->scales == InputFormat::kStatic)
    f.tensors.push_back({.role = Role::kInputScale,
                         .suffixes = {".input_scale", ".activation_scale"},
                         .dtypes = {"F32", "BF16", "F16"},
                         .shape = shape_of_one});
  return f;
}

}  // namespace skiff::model
