#include "model/unpack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/load_error.h"
#include "base/log.h"
#include "model/stored_numbers.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

constexpr int64_t kBand = 64;  // rows that are unpacked at a time

// The value of an element's byte.
float value_of(DType dtype, std::byte byte) {
  constexpr std::array<float, 8> kE2M1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const auto code = static_cast<uint8_t>(byte);
  switch (dtype) {
    case DType::kI8:
    case DType::kI4:
      return static_cast<int8_t>(code);
    case DType::kF4E2M1:
      return code & 8 ? -kE2M1[code & 7] : kE2M1[code & 7];
    case DType::kF8E4M3: {
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      const float size = (code & 0x7f) == 0x7f ? std::nanf("")
                         : exponent ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 10)
                                    : std::ldexp(static_cast<float>(mantissa), -9);
      return code & 0x80 ? -size : size;
    }
    default:
      return code;
  }
}

std::array<float, 256> values_of(DType dtype) {
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(dtype, static_cast<std::byte>(i));
  return values;
}

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Calls work(region, first row among those of `whole`) for at most kBand rows at a time.
template <class Work>
void for_each_band(const Region& whole, Work work) {
  for (int64_t r = 0; r < whole.rows; r += kBand)
    work(Region{whole.row + r, std::min(kBand, whole.rows - r), whole.col, whole.cols}, r);
}

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

// The scales, and the zero points where there are any, of some rows of a module.
class Scales {
 public:
  Scales(const StoredModule& module, const Region& region)
      : module_(module), across_(blocks_in(module.shape.in, module.format->values.block_in)) {
    first_ = block_row(module, region.row);
    const int64_t count = block_row(module, region.row + region.rows - 1) - first_ + 1;
    const auto size = static_cast<size_t>(count * across_);
    const Unpacking& unpacking = *module.format->unpacking;
    if (!unpacking.scales) return;
    scales_.resize(size);
    unpacking.scales(module, {first_, count}, scales_.data());
    check(count);
    if (!unpacking.zeros) return;
    zeros_.resize(size);
    unpacking.zeros(module, {first_, count}, zeros_.data());
  }
  float scale(int64_t row, int64_t col) const { return scales_[at(row, col)]; }
  float zero(int64_t row, int64_t col) const { return zeros_[at(row, col)]; }
  bool has_zeros() const { return !zeros_.empty(); }
  bool has_scales() const { return !scales_.empty(); }

 private:
  size_t at(int64_t row, int64_t col) const {
    return static_cast<size_t>((block_row(module_, row) - first_) * across_ +
                               block_col(module_, col));
  }
  const StoredTensor& tensor() const {
    const StoredTensor* scale = module_.of(Role::kScale);
    return scale ? *scale : *module_.of(Role::kWeight);
  }
  void check(int64_t count) const {
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < across_; ++c) {
        const float scale = scales_[static_cast<size_t>(r * across_ + c)];
        if (!std::isfinite(scale))
          fail_load("tensor \"{}\": the scale of block [{}, {}] is {}",
                    escaped(tensor().entry->name), first_ + r, c, scale);
        if (scale == 0) check_zero(first_ + r, c);
      }
  }
  // A scale of zero is right only for zeros.
  void check_zero(int64_t row, int64_t col) const {
    const WeightFormat& f = module_.format->values;
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
    if (f.zero) return;  // any element may be the zero point
    for (const std::byte e : elements)
      if (value_of(f.dtype, e) != 0)
        fail_load("tensor \"{}\": the scale of block [{}, {}] is 0, its elements are not",
                  escaped(tensor().entry->name), row, col);
  }

  const StoredModule& module_;
  const int64_t across_;
  int64_t first_ = 0;
  std::vector<float> scales_, zeros_;
};

// Widens rows of a module: the elements of whole rows are put where their columns belong.
class Widener {
 public:
  explicit Widener(const StoredModule& module)
      : module_(module), values_(values_of(module.format->values.dtype)) {}

  template <class T>
  void rows(const Region& region, T* to) {
    const int64_t in = module_.shape.in;
    const bool floats = module_.format->values.dtype == DType::kF32;
    elements_.resize(static_cast<size_t>(region.rows * in) * (floats ? sizeof(float) : 1));
    const Region whole{region.row, region.rows, 0, in};
    module_.format->unpacking->elements(module_, whole, elements_.data());
    const Scales scales(module_, whole);
    for (int64_t r = 0; r < region.rows; ++r)
      for (int64_t c = 0; c < in; ++c) {
        const int64_t col = module_.column(c) - region.col;
        if (col < 0 || col >= region.cols) continue;
        to[r * region.cols + col] = from_float<T>(
            floats ? float_at(r * in + c)
                   : value(scales, region.row + r, c, elements_[static_cast<size_t>(r * in + c)]));
      }
  }

 private:
  float float_at(int64_t index) const {
    float x = 0;
    std::memcpy(&x, elements_.data() + index * 4, 4);
    return x;
  }
  float value(const Scales& scales, int64_t row, int64_t col, std::byte element) const {
    const double code = values_[static_cast<size_t>(element)];
    const double scale = scales.scale(row, col);
    if (!scales.has_zeros()) return static_cast<float>(scale * code);
    const double zero = scales.zero(row, col);
    const bool minimum = is_float(*module_.format->values.zero);
    return static_cast<float>(minimum ? scale * code - zero : scale * (code - zero));
  }

  const StoredModule& module_;
  const std::array<float, 256> values_;
  std::vector<std::byte> elements_;
};

}  // namespace

template <class T>
void widen(const StoredModule& module, const Region& region, T* to) {
  Widener widener(module);
  for_each_band(region, [&](const Region& band, int64_t first) {
    widener.rows(band, to + first * region.cols);
  });
}

template void widen(const StoredModule&, const Region&, float*);
template void widen(const StoredModule&, const Region&, BF16*);

}  // namespace skiff::model
