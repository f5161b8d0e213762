// ops/reference/rows.h -- rows of any float dtype as plain float vectors.
#pragma once
#include <span>
#include <vector>

#include "tensor/convert.h"

namespace skiff::reference {

std::vector<float> load_row(Tensor t, int64_t row);
void store_row(Tensor t, int64_t row, std::span<const float> values);  // rounds once
void store(Tensor t, int64_t row, int64_t col, double value);          // rounds once
// The view [rows, cols] of entry `index` of a stack [n, rows, cols].
Tensor stack_entry(Tensor stack, int64_t index);

}  // namespace skiff::reference
