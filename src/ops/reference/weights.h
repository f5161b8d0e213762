// ops/reference/weights.h -- weights of any format as plain float vectors.
#pragma once
#include <vector>

#include "weights/linear.h"

namespace skiff::reference {

// The values of a matrix for output `out`.
std::vector<float> weight_row(const Linear& w, int64_t out);
// Matrix `index` of a stack of experts.
Linear expert_of(const Linear& stack, int64_t index);

}  // namespace skiff::reference
