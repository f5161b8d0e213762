// ops/reference/weights.h -- weights of any format as plain float vectors.
#pragma once
#include <vector>

#include "weights/linear.h"

namespace skiff::reference {

// The values of a matrix for output `out`, in the order of the weight's columns.
std::vector<float> weight_row(const Linear& w, int64_t out);
// What such a row is multiplied by: x in the order of the columns, rounded as the format says.
std::vector<float> input_row(const Linear& w, std::vector<float> x);
// Matrix `index` of a stack of experts.
Linear expert_of(const Linear& stack, int64_t index);

}  // namespace skiff::reference
