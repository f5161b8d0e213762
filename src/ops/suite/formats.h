// ops/suite/formats.h -- quantized weights for the op suite: every format that a backend may
// multiply, random weights in them, and what their products are by definition.
#pragma once
#include <vector>

#include "ops/suite/suite.h"

namespace skiff::suite {

// One format for each combination of elements, scales, zero points, blocks and activations that
// readers of checkpoints or quantization at load make. Cases run for those that a backend
// multiplies().
std::vector<WeightFormat> quantized_formats();

// A random weight with every code of its format; [experts, out, in] where `experts` is not zero.
// Elements of four bits need an even `in`. Some scales are zero, negative, or of a size far from
// the others', and zero points reach the ends of their dtype.
Linear random_weight(Workspace& ws, const WeightFormat& format, const WeightShape& shape);

// The definition, in double. `size` is what roundings are relative to: with a zero point,
// |scale| * (|element| + |zero|), because sums of both may be taken apart.
struct Entry {
  double value = 0, size = 0;
};
Entry weight_entry(const Linear& w, int64_t expert, int64_t out, int64_t in);
// A row of activations in the order of the weight's columns, rounded as the format says.
std::vector<double> rounded_input(std::vector<double> x, const Linear& w, int64_t expert);
// Row `out` of w times a row that rounded_input() returned, and how far sums in float32 may stray.
Approx quantized_product(const std::vector<double>& x, const Linear& w, int64_t expert, int64_t out,
                         bool device);
std::vector<double> row_of(const Tensor& x, int64_t row);
// silu(gate) * up, where both may be rounded to bf16 on their way.
Approx gated_output(Approx gate, Approx up);

}  // namespace skiff::suite
