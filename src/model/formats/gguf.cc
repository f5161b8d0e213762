// The types of GGUF: blocks of 32 or 256 elements along a row, each with its scales beside them.
// The layouts are those of ggml's quantize_row functions.
#include <cmath>

#include "gguf/gguf.h"
#include "model/quantization.h"
#include "model/stored_numbers.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

// A block of a type: its elements, and the scale and the zero point (a minimum) of each group.
struct BlockType {
  std::string_view name;
  WeightFormat values;
  uint8_t (*element)(const std::byte* block, int64_t index);
  float (*scale)(const std::byte* block, int64_t group);
  float (*zero)(const std::byte* block, int64_t group);
};

unsigned byte_at(const std::byte* block, int64_t index) {
  return static_cast<unsigned>(block[index]);
}

float half_at(const std::byte* block, int64_t index) {
  F16 value;
  std::memcpy(&value, block + index, sizeof value);
  return to_float(value);
}

// Elements j and j + 16 of 32 share a byte.
unsigned nibble(const std::byte* codes, int64_t index) {
  return byte_at(codes, index % 16) >> (index / 16 * 4) & 15;
}

float first_half(const std::byte* block, int64_t) { return half_at(block, 0); }

uint8_t q4_0(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(static_cast<int>(nibble(block + 2, i)) - 8);
}
uint8_t q4_1(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(nibble(block + 4, i));
}
float q4_1_zero(const std::byte* block, int64_t) { return -half_at(block, 2); }
uint8_t q8_0(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(byte_at(block, 2 + i));
}

// Groups of 32; scales and minima of 6 bits, of which groups 4 to 7 have their upper bits apart.
uint8_t q4_k(const std::byte* block, int64_t i) {
  const std::byte* codes = block + 16 + i / 64 * 32;
  return static_cast<uint8_t>(byte_at(codes, i % 32) >> (i % 64 / 32 * 4) & 15);
}
float q4_k_scale(const std::byte* block, int64_t g) {
  const std::byte* six = block + 4;
  const unsigned code =
      g < 4 ? byte_at(six, g) & 63 : (byte_at(six, g + 4) & 15) | byte_at(six, g - 4) >> 6 << 4;
  return half_at(block, 0) * static_cast<float>(code);
}
float q4_k_zero(const std::byte* block, int64_t g) {
  const std::byte* six = block + 4;
  const unsigned code =
      g < 4 ? byte_at(six, g + 4) & 63 : byte_at(six, g + 4) >> 4 | byte_at(six, g) >> 6 << 4;
  return half_at(block, 2) * static_cast<float>(code);
}

// Groups of 16; four lower bits, then two upper ones, in two halves of 128.
uint8_t q6_k(const std::byte* block, int64_t i) {
  const int64_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
  const unsigned low = byte_at(block, half * 64 + quarter % 2 * 32 + l) >> (quarter / 2 * 4) & 15;
  const unsigned high = byte_at(block, 128 + half * 32 + l) >> (quarter * 2) & 3;
  return static_cast<uint8_t>(static_cast<int>(low | high << 4) - 32);
}
float q6_k_scale(const std::byte* block, int64_t g) {
  return half_at(block, 208) * static_cast<float>(static_cast<int8_t>(block[192 + g]));
}

uint8_t mxfp4(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(nibble(block + 1, i));
}
float mxfp4_scale(const std::byte* block, int64_t) {
  return std::ldexp(1.0f, static_cast<int>(byte_at(block, 0)) - 127);
}

constexpr WeightFormat grouped(DType dtype, int group, DType scale) {
  return {.dtype = dtype, .block_out = 1, .block_in = group, .scale = scale};
}
constexpr WeightFormat with_minimum(WeightFormat format, DType zero) {
  format.zero = zero;
  return format;
}

constexpr BlockType kTypes[] = {
    {"Q4_0", grouped(DType::kI4, 32, DType::kF16), q4_0, first_half, nullptr},
    {"Q4_1", with_minimum(grouped(DType::kU4, 32, DType::kF16), DType::kF16), q4_1, first_half,
     q4_1_zero},
    {"Q8_0", grouped(DType::kI8, 32, DType::kF16), q8_0, first_half, nullptr},
    {"Q4_K", with_minimum(grouped(DType::kU4, 32, DType::kF32), DType::kF32), q4_k, q4_k_scale,
     q4_k_zero},
    {"Q6_K", grouped(DType::kI8, 16, DType::kF32), q6_k, q6_k_scale, nullptr},
    {"MXFP4", grouped(DType::kF4E2M1, 32, DType::kF32), mxfp4, mxfp4_scale, nullptr},
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
                               .zeros = kTypes[Type].zero ? zeros<Type> : nullptr};

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
          .stacks = true};
}

}  // namespace

Quantization gguf_quantization(const std::string& path) {
  Quantization made;
  made.method = "gguf";
  made.where = path;
  made.formats = {format<0>(), format<1>(), format<2>(), format<3>(), format<4>(), format<5>()};
  LayerRule rule{NamePattern(PatternKind::kAll, "", path), {}};
  for (size_t i = 0; i < made.formats.size(); ++i) rule.formats.push_back(i);
  made.rules.push_back(rule);
  made.about = "GGUF, a type for each tensor";
  return made;
}

}  // namespace skiff::model
