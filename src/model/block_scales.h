// model/block_scales.h -- the scales and zero points of some rows of a quantized module, checked.
#pragma once
#include <vector>

#include "model/stored_format.h"

namespace skiff::model {

// Reads and checks them once. Throws a LoadError that names the tensor where a scale or a zero
// point is not finite, or a scale is zero although elements of its block are not (unless the format
// has zero_scales). The elements are looked at where the region has the first row of their block,
// so that the bands of a module read each block once. The module must outlive it.
class BlockScales {
 public:
  // Those of all columns of the rows of `region`, as in the canonical form.
  BlockScales(const StoredModule& module, const Region& region);

  // Return the scale and the zero point of an element of the module; the row must be one of the
  // region.
  float scale(int64_t row, int64_t col) const { return scales_[at(row, col)]; }
  float zero(int64_t row, int64_t col) const { return zeros_[at(row, col)]; }
  bool has_zeros() const { return !zeros_.empty(); }

 private:
  size_t at(int64_t row, int64_t col) const;
  void check(int64_t count, int64_t first_row) const;
  void check_zero(int64_t row, int64_t col, int64_t first_row) const;
  bool is_zero(const Region& region) const;

  const StoredModule& module_;
  const int64_t across_;
  int64_t first_ = 0;
  std::vector<float> scales_, zeros_;
};

// The value of an element's byte.
float value_of_element(DType dtype, std::byte byte);

}  // namespace skiff::model
