#include "model/block_scales.h"

#include <algorithm>
#include <cmath>

#include "base/load_error.h"
#include "base/log.h"
#include "weights/codes.h"

namespace skiff::model {
namespace {

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
  check(count);
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

void BlockScales::check(int64_t count) const {
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < across_; ++c) {
      const float scale = scales_[static_cast<size_t>(r * across_ + c)];
      if (!std::isfinite(scale))
        fail_load("tensor \"{}\": the scale of block [{}, {}] is {}",
                  escaped(tensor_of(module_).entry->name), first_ + r, c, scale);
      if (scale == 0 && !module_.format->zero_scales) check_zero(first_ + r, c);
    }
}

// A scale of zero is right only for zeros; with zero points, any element may stand for one.
void BlockScales::check_zero(int64_t row, int64_t col) const {
  const WeightFormat& f = module_.format->values;
  if (f.zero) return;
  const int64_t down = blocks_in(module_.shape.out, f.block_out);
  const int64_t tall = f.block_out ? f.block_out : module_.shape.out;
  const int64_t wide = f.block_in ? f.block_in : module_.shape.in;
  const int64_t begin = row % down * tall, left = col * wide;
  const Region block{.row = row / down * module_.shape.out + begin,
                     .rows = std::min(tall, module_.shape.out - begin),
                     .col = left,
                     .cols = std::min(wide, module_.shape.in - left)};
  std::vector<std::byte> elements(static_cast<size_t>(block.rows * block.cols));
  module_.format->unpacking->elements(module_, block, elements.data());
  for (const std::byte e : elements)
    if (value_of_element(f.dtype, e) != 0)
      fail_load("tensor \"{}\": the scale of block [{}, {}] is 0, its elements are not",
                escaped(tensor_of(module_).entry->name), row, col);
}

}  // namespace skiff::model
