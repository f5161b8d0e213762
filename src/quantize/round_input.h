// quantize/round_input.h -- activations as they are after they were rounded for a weight that
// multiplies rounded activations.
#pragma once
#include "quantize/matrix.h"
#include "weights/format.h"

namespace skiff::quantize {

// Replaces each element of `rows` [count, cols] by the value that `input` keeps of it: kToken or
// kGroups.
void round_input(float* rows, int64_t count, int64_t cols, const InputFormat& input);

}  // namespace skiff::quantize
