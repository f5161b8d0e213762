// quantize/input_range.h -- how large activations may be before a static scale clips them.
#pragma once
#include <vector>

#include "quantize/matrix.h"

namespace skiff::quantize {

float largest_magnitude(const Matrix& x);

// Returns the magnitude that 127 stands for when outputs of `weights` [out, in] lose least: a
// smaller one clips large inputs, a larger one rounds all others more. Tried are fractions of the
// largest magnitude among `inputs` [tokens, in], down to 1/64. An input's error counts by the
// squares of its column in the weights, as if errors of inputs were independent. The result does
// not depend on threads.
float input_range(const Matrix& inputs, const std::vector<const Matrix*>& weights, int threads);

}  // namespace skiff::quantize
