// The types of GGUF: blocks of 32 or 256 elements along a row, each with its scales beside them.
#include <utility>

#include "gguf/gguf.h"
#include "model/formats/gguf_blocks.h"
#include "model/formats/gguf_k_blocks.h"
#include "model/quantization.h"

namespace skiff::model {
namespace {

namespace blocks = gguf_blocks;

// A block of a type: its elements, and the scale and the zero point (a minimum) of each group.
struct BlockType {
  std::string_view name;
  WeightFormat values;
  uint8_t (*element)(const std::byte* block, int64_t index);
  float (*scale)(const std::byte* block, int64_t group);
  float (*zero)(const std::byte* block, int64_t group);
};

constexpr WeightFormat grouped(DType dtype, int group, DType scale) {
  return {.dtype = dtype, .block_out = 1, .block_in = group, .scale = scale};
}
constexpr WeightFormat with_minimum(WeightFormat format, DType zero) {
  format.zero = zero;
  return format;
}
constexpr WeightFormat kEightBits = grouped(DType::kI8, 32, DType::kF16);

// Elements take the fewest bits that hold their codes: five become eight. A scale that is a product
// with the block's own becomes float32, which holds it exactly.
constexpr BlockType kTypes[] = {
    {"Q4_0", grouped(DType::kI4, 32, DType::kF16), blocks::q4_0, blocks::first_half, nullptr},
    {"Q4_1", with_minimum(grouped(DType::kU4, 32, DType::kF16), DType::kF16), blocks::q4_1,
     blocks::first_half, blocks::second_half_negated},
    {"Q5_0", kEightBits, blocks::q5_0, blocks::first_half, nullptr},
    {"Q5_1", with_minimum(grouped(DType::kU8, 32, DType::kF16), DType::kF16), blocks::q5_1,
     blocks::first_half, blocks::second_half_negated},
    {"Q8_0", kEightBits, blocks::q8_0, blocks::first_half, nullptr},
    {"Q2_K", with_minimum(grouped(DType::kU4, 16, DType::kF32), DType::kF32), blocks::q2_k,
     blocks::q2_k_scale, blocks::q2_k_zero},
    {"Q3_K", grouped(DType::kI4, 16, DType::kF32), blocks::q3_k, blocks::q3_k_scale, nullptr},
    {"Q4_K", with_minimum(grouped(DType::kU4, 32, DType::kF32), DType::kF32), blocks::q4_k,
     blocks::q4_k_scale, blocks::q4_k_zero},
    {"Q5_K", with_minimum(grouped(DType::kU8, 32, DType::kF32), DType::kF32), blocks::q5_k,
     blocks::q4_k_scale, blocks::q4_k_zero},
    {"Q6_K", grouped(DType::kI8, 16, DType::kF32), blocks::q6_k, blocks::q6_k_scale, nullptr},
    {"Q8_K", grouped(DType::kI8, 256, DType::kF32), blocks::q8_k, blocks::q8_k_scale, nullptr},
    {"IQ4_NL", kEightBits, blocks::iq4_nl, blocks::first_half, nullptr},
    {"IQ4_XS", grouped(DType::kI8, 32, DType::kF32), blocks::iq4_xs, blocks::iq4_xs_scale, nullptr},
    {"MXFP4", grouped(DType::kF4E2M1, 32, DType::kF32), blocks::mxfp4, blocks::mxfp4_scale,
     nullptr},
};

// The blocks of one row of a module.
template <size_t Type>
const std::byte* row_of(const StoredModule& m, int64_t row) {
  static const GgufType& type = *find_gguf_type(kTypes[Type].name);
  return m.of(Role::kWeight)->bytes.data() + row * (m.shape.in / type.elements) * type.bytes;
}

template <size_t Type>
void elements(const StoredModule& m, const Region& region, std::byte* to) {
  static const GgufType& type = *find_gguf_type(kTypes[Type].name);
  for (int64_t r = 0; r < region.rows; ++r) {
    const std::byte* row = row_of<Type>(m, region.row + r);
    for (int64_t c = region.col; c < region.col + region.cols; ++c)
      *to++ = static_cast<std::byte>(
          kTypes[Type].element(row + c / type.elements * type.bytes, c % type.elements));
  }
}

template <size_t Type>
void each_group(const StoredModule& m, const BlockRows& rows, float* to,
                float (*number)(const std::byte*, int64_t)) {
  static const GgufType& type = *find_gguf_type(kTypes[Type].name);
  const int64_t group = kTypes[Type].values.block_in, per_block = type.elements / group;
  for (int64_t r = rows.first; r < rows.first + rows.count; ++r)
    for (int64_t g = 0; g < m.shape.in / group; ++g)
      *to++ = number(row_of<Type>(m, r) + g / per_block * type.bytes, g % per_block);
}

template <size_t Type>
void scales(const StoredModule& m, const BlockRows& rows, float* to) {
  each_group<Type>(m, rows, to, kTypes[Type].scale);
}
template <size_t Type>
void zeros(const StoredModule& m, const BlockRows& rows, float* to) {
  each_group<Type>(m, rows, to, kTypes[Type].zero);
}

template <size_t Type>
constexpr Unpacking kUnpacking{.elements = elements<Type>,
                               .scales = scales<Type>,
                               .zeros = kTypes[Type].values.zero ? zeros<Type> : nullptr};

template <size_t Type>
StoredFormat format() {
  return {.name = std::string(kTypes[Type].name),
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".weight"},
                       .dtypes = {kTypes[Type].name},
                       .shape = shape_of_matrix},
                      bias_rule()},
          .values = kTypes[Type].values,
          .unpacking = &kUnpacking<Type>,
          .tables = true,
          .zero_scales = true,
          .stacks = true};
}

template <size_t... Types>
std::vector<StoredFormat> formats(std::index_sequence<Types...>) {
  return {format<Types>()...};
}

}  // namespace

Quantization gguf_quantization(const std::string& path) {
  Quantization made;
  made.method = "gguf";
  made.where = path;
  made.formats = formats(std::make_index_sequence<std::size(kTypes)>());
  LayerRule rule{NamePattern(PatternKind::kAll, "", path), {}};
  for (size_t i = 0; i < made.formats.size(); ++i) rule.formats.push_back(i);
  made.rules.push_back(rule);
  made.about = "GGUF, a type for each tensor";
  return made;
}

}  // namespace skiff::model
