// quantize/round_input.h -- activations as they are after they were rounded for a weight that
// multiplies rounded activations.
#pragma once
#include "quantize/matrix.h"
#include "weights/format.h"

namespace skiff::quantize {

// How activations are rounded, and with kStatic the largest magnitude that their one scale covers;
// 0: that of the rows themselves.
struct RoundedInput {
  InputFormat format;
  float largest = 0;
};

// Replaces each element of `rows` [count, cols] by the value that `input` keeps of it.
void round_input(float* rows, int64_t count, int64_t cols, const RoundedInput& input);

}  // namespace skiff::quantize
