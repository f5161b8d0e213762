#include "model/formats/ccq.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

constexpr int64_t kGroup = 64, kInByte = 4;
constexpr unsigned kWindow = 63, kMiddle = 32;

std::vector<int64_t> four_inputs_a_byte(const ModuleShape& m, const StoredFormat&) {
  return {m.in / kInByte, m.out};
}
std::vector<int64_t> two_groups_a_byte(const ModuleShape& m, const StoredFormat&) {
  return {(m.in / kGroup + 1) / 2, m.out};
}

void settle(StoredModule& m) {
  if (m.shape.in % kGroup)
    fail_load("tensor \"{}\": {} inputs are not whole groups of {}",
              escaped(m.of(Role::kWeight)->entry->name), m.shape.in, kGroup);
}

// The first of two groups is in the high half.
unsigned scale_code(const StoredModule& m, int64_t out, int64_t group) {
  const auto two = stored<uint8_t>(*m.of(Role::kScale), group / 2 * m.shape.out + out);
  return two >> (group % 2 ? 0 : 4) & 15;
}

// The word behind a byte; its lowest 15 bits count.
unsigned word_of(const StoredModule& m, int64_t out, uint8_t byte) {
  const StoredTensor& offsets = *m.of(Role::kCodeOffset);
  const float scale = stored<float>(*m.of(Role::kCodeScale), out),
              zero = stored<float>(offsets, out);
  const float word = std::floor(static_cast<float>(byte) * scale + zero + 0.5f);
  constexpr float kMost = 1 << 15;
  if (!(std::abs(word) <= kMost))  // true for NaN
    fail_load("tensor \"{}\": the word of output {} is {}; it must have 16 bits",
              escaped(offsets.entry->name), out, word);
  return static_cast<unsigned>(static_cast<int>(word));
}

// Byte by byte, so that each is taken apart once. A group whose scale has the code 0 is zero
// whatever its words say.
void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& bytes = *m.of(Role::kWeight);
  const int64_t end = region.col + region.cols;
  for (int64_t first = region.col / kInByte * kInByte; first < end; first += kInByte)
    for (int64_t r = 0; r < region.rows; ++r) {
      const int64_t out = region.row + r;
      const auto byte = stored<uint8_t>(bytes, first / kInByte * m.shape.out + out);
      const unsigned word = word_of(m, out, byte);
      const bool some = scale_code(m, out, first / kGroup) != 0;
      for (int64_t k = std::max(first, region.col); k < std::min(first + kInByte, end); ++k) {
        const unsigned window = word >> (9 - k % kInByte * 3) & kWindow;
        to[r * region.cols + k - region.col] = static_cast<std::byte>(some ? window - kMiddle : 0);
      }
    }
}

void scales(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& of_outputs = *m.of(Role::kScaleOfScales);
  for (int64_t out = rows.first; out < rows.first + rows.count; ++out)
    for (int64_t g = 0; g < m.shape.in / kGroup; ++g)
      *to++ = static_cast<float>(scale_code(m, out, g)) * stored_float(of_outputs, out);
}

constexpr Unpacking kUnpacking{.elements = elements, .scales = scales, .settle = settle};

}  // namespace

StoredFormat ccq_format() {
  return {.name = "FastDeploy wint2 (CCQ), groups of 64",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".quant_weight"},
                       .dtypes = {"U8"},
                       .shape = four_inputs_a_byte},
                      {.role = Role::kScale,
                       .suffixes = {".weight_scale"},
                       .dtypes = {"U8"},
                       .shape = two_groups_a_byte},
                      {.role = Role::kScaleOfScales,
                       .suffixes = {".super_scales"},
                       .dtypes = {"F32", "BF16", "F16"},
                       .shape = shape_of_outputs},
                      {.role = Role::kCodeScale,
                       .suffixes = {".code_scale"},
                       .dtypes = {"F32"},
                       .shape = shape_of_outputs},
                      {.role = Role::kCodeOffset,
                       .suffixes = {".code_zp"},
                       .dtypes = {"F32"},
                       .shape = shape_of_outputs},
                      bias_rule()},
          .values = {.dtype = DType::kI8,
                     .block_out = 1,
                     .block_in = static_cast<int>(kGroup),
                     .scale = DType::kF32},
          .unpacking = &kUnpacking,
          .bits = 2};
}

}  // namespace skiff::model
