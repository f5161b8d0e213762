#include "model/block_scales.h"

#include <algorithm>
#include <cmath>

#include "base/load_error.h"
#include "base/log.h"
#include "weights/codes.h"

namespace skiff::model {
namespace {

constexpr int64_t kBand = 64;  // rows of a block that are looked at together

// The row of blocks that has this row of a module.
int64_t block_row(const StoredModule& module, int64_t row) {
  const int block = module.format->values.block_out;
  const int64_t down = blocks_in(module.shape.out, block);
  return row / module.shape.out * down + (block ? row % module.shape.out / block : 0);
}

int64_t block_col(const StoredModule& module, int64_t col) {
  const int block = module.format->values.block_in;
  return block ? col / block : 0;
}

const StoredTensor& tensor_of(const StoredModule& module) {
  const StoredTensor* scale = module.of(Role::kScale);
  return scale ? *scale : *module.of(Role::kWeight);
}

}  // namespace

float value_of_element(DType dtype, std::byte byte) {
  const auto code = static_cast<uint8_t>(byte);
  switch (dtype) {
    case DType::kI8:
    case DType::kI4:  // the sign fills the byte
      return static_cast<int8_t>(code);
    case DType::kF8E4M3:
    case DType::kF4E2M1:
      return code_value(&code, dtype, 0);
    default:
      return code;
  }
}

BlockScales::BlockScales(const StoredModule& module, const Region& region)
    : module_(module), across_(blocks_in(module.shape.in, module.format->values.block_in)) {
  const Unpacking& unpacking = *module.format->unpacking;
  if (!unpacking.scales) return;
  first_ = block_row(module, region.row);
  const int64_t count = block_row(module, region.row + region.rows - 1) - first_ + 1;
  scales_.resize(static_cast<size_t>(count * across_));
  unpacking.scales(module, {first_, count}, scales_.data());
  check(count, region.row);
  if (!unpacking.zeros) return;
  zeros_.resize(scales_.size());
  unpacking.zeros(module, {first_, count}, zeros_.data());
  for (size_t i = 0; i < zeros_.size(); ++i)
    if (!std::isfinite(zeros_[i]))
      fail_load("tensor \"{}\": the minimum of block [{}, {}] is {}",
                escaped(tensor_of(module).entry->name), first_ + static_cast<int64_t>(i) / across_,
                static_cast<int64_t>(i) % across_, zeros_[i]);
}

size_t BlockScales::at(int64_t row, int64_t col) const {
  return static_cast<size_t>((block_row(module_, row) - first_) * across_ +
                             block_col(module_, col));
}

void BlockScales::check(int64_t count, int64_t first_row) const {
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < across_; ++c) {
      const float scale = scales_[static_cast<size_t>(r * across_ + c)];
      if (!std::isfinite(scale))
        fail_load("tensor \"{}\": the scale of block [{}, {}] is {}",
                  escaped(tensor_of(module_).entry->name), first_ + r, c, scale);
      if (scale == 0 && !module_.format->zero_scales) check_zero(first_ + r, c, first_row);
    }
}

// A scale of zero is right only for zeros; with zero points, any element may stand for one.
void BlockScales::check_zero(int64_t row, int64_t col, int64_t first_row) const {
  const WeightFormat& f = module_.format->values;
  const int64_t down = blocks_in(module_.shape.out, f.block_out);
  const int64_t tall = f.block_out ? f.block_out : module_.shape.out;
  const int64_t wide = f.block_in ? f.block_in : module_.shape.in;
  const int64_t begin = row % down * tall, left = col * wide;
  Region band{.row = row / down * module_.shape.out + begin,
              .rows = kBand,
              .col = left,
              .cols = std::min(wide, module_.shape.in - left)};
  if (f.zero || band.row < first_row) return;
  const int64_t end = band.row + std::min(tall, module_.shape.out - begin);
  for (; band.row < end; band.row += kBand) {
    band.rows = std::min(kBand, end - band.row);
    if (!is_zero(band))
      fail_load("tensor \"{}\": the scale of block [{}, {}] is 0, its elements are not",
                escaped(tensor_of(module_).entry->name), row, col);
  }
}

bool BlockScales::is_zero(const Region& region) const {
  std::vector<std::byte> elements(static_cast<size_t>(region.rows * region.cols));
  module_.format->unpacking->elements(module_, region, elements.data());
  return std::ranges::all_of(elements, [&](std::byte e) {
    return value_of_element(module_.format->values.dtype, e) == 0;
  });
}

}  // namespace skiff::model
