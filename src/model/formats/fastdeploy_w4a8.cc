#include "model/formats/fastdeploy_w4a8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/log.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

constexpr int64_t kTile = 64;     // inputs of an output that lie together
constexpr int64_t kTogether = 4;  // outputs whose tiles follow each other
constexpr float kMostCode = 7, kMostInput = 127;
constexpr double kShift = 16;  // the kernels multiply elements in the upper halves of bytes

// Half `nibble` of the bytes, two's complement.
int element(const StoredTensor& tensor, int64_t nibble) {
  const unsigned four = stored<uint8_t>(tensor, nibble / 2) >> (nibble % 2 * 4) & 15;
  return static_cast<int>(four ^ 8) - 8;
}

// The low half has the input with the even number.
int64_t plain_place(const ModuleShape& m, int64_t out, int64_t in) {
  return (in / 2 * m.out + out) * 2 + in % 2;
}

// A word of eight elements has inputs 0 to 3 of each 32, or 4 to 7, ..., in the low halves of its
// bytes, and those that are 16 further on in the high halves.
int64_t permuted_place(const ModuleShape& m, int64_t out, int64_t in) {
  const int64_t tile = out / kTogether * (m.in / kTile) + in / kTile;
  const int64_t row = tile * kTogether + out % kTogether, k = in % kTile;
  const int64_t word = k / 32 * 4 + k % 16 / 4;
  return row * kTile + word * 8 + k % 4 * 2 + k % 32 / 16;
}

using Place = int64_t (*)(const ModuleShape&, int64_t, int64_t);

template <Place kPlace>
void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& tensor = *m.of(Role::kWeight);
  for (int64_t r = region.row; r < region.row + region.rows; ++r)
    for (int64_t c = region.col; c < region.col + region.cols; ++c)
      *to++ = static_cast<std::byte>(element(tensor, kPlace(m.shape, r, c)));
}

void plain_scales(const StoredModule& m, const BlockRows& rows, float* to) {
  for (int64_t i = rows.first; i < rows.first + rows.count; ++i)
    *to++ = stored_float(*m.of(Role::kScale), i) / kMostCode;
}
float plain_input_scale(const StoredModule& m) {
  return stored_float(*m.of(Role::kInputScale), 0) / kMostInput;
}

// An input is multiplied by 127 times its scale, the sum of products by the output's.
void permuted_scales(const StoredModule& m, const BlockRows& rows, float* to) {
  const double input = stored_float(*m.of(Role::kInputScale), 0);
  for (int64_t i = rows.first; i < rows.first + rows.count; ++i)
    *to++ = static_cast<float>(kShift * kMostInput * input * stored_float(*m.of(Role::kScale), i));
}
float permuted_input_scale(const StoredModule& m) {
  return 1 / (kMostInput * stored_float(*m.of(Role::kInputScale), 0));
}

// Multiplies the row by the Hadamard matrix of its length in Sylvester's order: its elements are 1
// and -1.
void rotate(std::span<int> row) {
  for (size_t half = 1; half < row.size(); half *= 2)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i & half) continue;
      const int left = row[i], right = row[i + half];
      row[i] = left + right;
      row[i + half] = left - right;
    }
}

float value_of(const StoredModule& m, int64_t out, float scale, int element) {
  const float value = scale * static_cast<float>(element);
  const std::string& tensor = m.of(Role::kScale)->entry->name;
  if (!std::isfinite(value))
    fail_load("tensor \"{}\": the scale of output {} is {}", escaped(tensor), out, scale);
  if (scale == 0 && element != 0)
    fail_load("tensor \"{}\": the scale of output {} is 0, its elements are not", escaped(tensor),
              out);
  return value;
}

// Inputs x are multiplied by H before they are rounded, so that the elements E of a weight stand
// for E H. Its values are these, each rounded once.
template <Place kPlace, auto kScales>
void rotated(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& tensor = *m.of(Role::kWeight);
  const int64_t block = m.format->group, end = region.col + region.cols;
  std::vector<int> row(static_cast<size_t>(block));
  for (int64_t r = region.row; r < region.row + region.rows; ++r) {
    float scale = 0;
    kScales(m, {r, 1}, &scale);
    for (int64_t first = region.col / block * block; first < end; first += block) {
      for (int64_t i = 0; i < block; ++i)
        row[static_cast<size_t>(i)] = element(tensor, kPlace(m.shape, r, first + i));
      rotate(row);
      for (int64_t c = std::max(first, region.col); c < std::min(first + block, end); ++c) {
        const float value = value_of(m, r, scale, row[static_cast<size_t>(c - first)]);
        std::memcpy(to, &value, sizeof value);
        to += sizeof value;
      }
    }
  }
}

void settle_plain(StoredModule& m) {
  if (m.shape.in % 2)
    fail_load("tensor \"{}\": {} inputs are not whole bytes of two",
              escaped(m.of(Role::kWeight)->entry->name), m.shape.in);
}
void settle_permuted(StoredModule& m) {
  if (m.shape.in % kTile || m.shape.out % kTogether)
    fail_load("tensor \"{}\": {} x {} elements are not whole tiles of {} x {}",
              escaped(m.of(Role::kWeight)->entry->name), m.shape.out, m.shape.in, kTogether, kTile);
}

// Inputs are not rounded here, but the scale of theirs says what the checkpoint is for, and is a
// factor of the outputs' scales in the order of the kernels.
template <auto kSettle>
void settle_rotated(StoredModule& m) {
  kSettle(m);
  if (m.shape.in % m.format->group)
    fail_load(
        "tensor \"{}\": {} inputs are not whole blocks of {} (\"hadamard_block_size\"), by which "
        "FastDeploy rotates the inputs of down_proj",
        escaped(m.of(Role::kWeight)->entry->name), m.shape.in, m.format->group);
  const StoredTensor& tensor = *m.of(Role::kInputScale);
  if (const float scale = stored_float(tensor, 0); !std::isfinite(scale) || scale <= 0)
    fail_load("tensor \"{}\": the scale of activations is {}; it must be positive",
              escaped(tensor.entry->name), scale);
}

std::vector<int64_t> bytes_of_two_inputs(const ModuleShape& m, const StoredFormat&) {
  return {m.in / 2, m.out};
}

constexpr Unpacking kPlain{.elements = elements<plain_place>,
                           .scales = plain_scales,
                           .settle = settle_plain,
                           .input_scale = plain_input_scale};
constexpr Unpacking kPermuted{.elements = elements<permuted_place>,
                              .scales = permuted_scales,
                              .settle = settle_permuted,
                              .input_scale = permuted_input_scale};
constexpr Unpacking kPlainRotated{.elements = rotated<plain_place, plain_scales>,
                                  .settle = settle_rotated<settle_plain>};
constexpr Unpacking kPermutedRotated{.elements = rotated<permuted_place, permuted_scales>,
                                     .settle = settle_rotated<settle_permuted>};

}  // namespace

StoredFormat fastdeploy_w4a8(bool permuted) {
  return {.name = permuted ? "FastDeploy w4a8 in tiles" : "FastDeploy w4a8",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".quant_weight"},
                       .dtypes = {"I8"},
                       .shape = bytes_of_two_inputs},
                      {.role = Role::kScale,
                       .suffixes = {".weight_scale"},
                       .dtypes = {"F32", "BF16", "F16"},
                       .shape = shape_of_outputs},
                      {.role = Role::kInputScale,
                       .suffixes = {".activation_scale"},
                       .dtypes = {"F32", "BF16", "F16"},
                       .shape = shape_of_one},
                      bias_rule()},
          .values = {.dtype = DType::kI4,
                     .block_out = 1,
                     .block_in = 0,
                     .scale = DType::kF32,
                     .input = InputFormat{.dtype = DType::kI8, .scales = InputFormat::kStatic}},
          .unpacking = permuted ? &kPermuted : &kPlain,
          .bits = 4,
          .derived = true};
}

StoredFormat fastdeploy_w4a8_rotated(bool permuted, int block) {
  StoredFormat f = fastdeploy_w4a8(permuted);
  f.name += fmt::format(", inputs rotated in blocks of {}", block);
  f.values = {.dtype = DType::kF32};
  f.group = block;
  f.unpacking = permuted ? &kPermutedRotated : &kPlainRotated;
  return f;
}

}  // namespace skiff::model
