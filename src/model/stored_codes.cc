#include "model/stored_codes.h"

#include <algorithm>
#include <cmath>

#include "base/load_error.h"
#include "base/log.h"
#include "model/block_scales.h"
#include "model/stored_numbers.h"
#include "tensor/convert.h"
#include "weights/codes.h"

namespace skiff::model {
namespace {

constexpr int64_t kBand = 64;  // rows whose elements have a byte each on their way

// Joins bytes to elements of four bits, the first in the low half.
void join_nibbles(const std::vector<std::byte>& from, std::byte* to) {
  for (size_t i = 0; i < from.size(); i += 2)
    to[i / 2] = (from[i] & std::byte{15}) | (from[i + 1] << 4);
}

// Puts the elements of a region where row `at` of `to` begins.
void put_elements(const StoredModule& module, const Region& region, int64_t at, const Linear& to) {
  const int64_t in = to.weight.cols();
  const auto elements = module.format->unpacking->elements;
  auto* data = static_cast<std::byte*>(to.weight.data) + byte_size(to.format.dtype, at * in);
  if (bits(to.format.dtype) == 8) return elements(module, region, data);
  std::vector<std::byte> bytes;
  for (int64_t r = 0; r < region.rows; r += kBand) {
    const Region band{region.row + r, std::min(kBand, region.rows - r), region.col, region.cols};
    bytes.resize(static_cast<size_t>(band.rows * band.cols));
    elements(module, band, bytes.data());
    join_nibbles(bytes, data + r * in / 2);
  }
}

void put_number(const Tensor& to, int64_t index, float value) {
  switch (to.dtype) {
    case DType::kF32:
      to.as<float>()[index] = value;
      return;
    case DType::kF16:
      to.as<F16>()[index] = to_f16(value);
      return;
    case DType::kBF16:
      to.as<BF16>()[index] = to_bf16(value);
      return;
    case DType::kU8:
      to.as<uint8_t>()[index] = static_cast<uint8_t>(value);
      return;
    default:
      SKIFF_CHECK(to.dtype == DType::kI8, "numbers in {}", name(to.dtype));
      to.as<int8_t>()[index] = static_cast<int8_t>(value);
  }
}

// Puts the scales and zero points of all blocks that begin in the region, whose first row is row
// `at` of `to`. Blocks of `to` are as fine as the module's or finer.
void put_scales(const StoredModule& module, const Region& region, int64_t at, const Linear& to) {
  const WeightFormat& format = to.format;
  const BlockScales scales(module, region);
  const int64_t tall = format.block_out ? format.block_out : to.weight.rows();
  const int64_t across = num_blocks(to.weight.cols(), format.block_in);
  for (int64_t row = (at + tall - 1) / tall * tall; row < at + region.rows; row += tall)
    for (int64_t g = 0; g < across; ++g) {
      const int64_t from = region.row + row - at, col = region.col + g * format.block_in;
      put_number(to.scale, row / tall * across + g, scales.scale(from, col));
      if (format.zero) put_number(to.zero, row / tall * across + g, scales.zero(from, col));
    }
}

float input_scale_of(const StoredModule& module) {
  const auto derived = module.format->unpacking->input_scale;
  const StoredTensor* tensor = module.of(Role::kInputScale);
  const float scale = derived ? derived(module) : stored_float(*tensor, 0);
  if (!std::isfinite(scale) || scale <= 0)
    fail_load("tensor \"{}\": the scale of activations is {}; it must be positive",
              escaped((tensor ? tensor : module.of(Role::kWeight))->entry->name), scale);
  return scale;
}

}  // namespace

void fill_codes(const Source& source, const Slot& slot, int64_t first, const Linear& to) {
  SKIFF_CHECK(to.format == source.format && to.weight.cols() == slot.in, "{} to {}",
              describe(source.format), describe(to.format));
  for_each_part(source, first, to.weight.rows(),
                [&](const StoredModule& module, const Region& region, int64_t at) {
                  put_elements(module, region, at, to);
                  put_scales(module, region, at, to);
                });
}

std::vector<float> input_scales(const Source& source, const Slot& slot) {
  const auto& input = source.format.input;
  if (!input || input->scales != InputFormat::kStatic) return {};
  std::vector<float> scales(static_cast<size_t>(std::max<int64_t>(1, slot.experts)));
  int64_t at = 0;
  for (const Part& part : source.parts) {
    const float scale = input_scale_of(source.module_of(part));
    for (int64_t e = at / slot.out; e * slot.out < at + part.region.rows; ++e) {
      float& most = scales[static_cast<size_t>(e)];
      most = std::max(most, scale);
    }
    at += part.region.rows;
  }
  return scales;
}

}  // namespace skiff::model
