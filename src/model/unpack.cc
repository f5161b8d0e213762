#include "model/unpack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "model/block_scales.h"
#include "tensor/convert.h"
#include "weights/codes.h"

namespace skiff::model {
namespace {

constexpr int64_t kBand = 64;  // rows that are unpacked at a time

std::array<float, 256> values_of(DType dtype) {
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = value_of_element(dtype, static_cast<std::byte>(i));
  return values;
}

// Calls work(region, first row among those of `whole`) for at most kBand rows at a time.
template <class Work>
void for_each_band(const Region& whole, Work work) {
  for (int64_t r = 0; r < whole.rows; r += kBand)
    work(Region{whole.row + r, std::min(kBand, whole.rows - r), whole.col, whole.cols}, r);
}

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
    const BlockScales scales(module_, whole);
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
  float value(const BlockScales& scales, int64_t row, int64_t col, std::byte element) const {
    const double code = values_[static_cast<size_t>(element)];
    const double scale = scales.scale(row, col);
    if (!scales.has_zeros()) return static_cast<float>(scale * code);
    const double zero = scales.zero(row, col);
    const bool minimum = is_wide_float(*module_.format->values.zero);
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
