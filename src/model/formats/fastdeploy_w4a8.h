// model/formats/fastdeploy_w4a8.h -- FastDeploy's "w4a8": experts whose elements have four bits and
// a scale for each output, and whose inputs are rounded to eight bits by one scale of each expert.
#pragma once
#include "model/quantization.h"

namespace skiff::model {

// With `permuted`, elements are in the order of FastDeploy's kernels (inputs must be a multiple of
// 64 and outputs of four), and both scales are what these kernels multiply by. Else elements are
// [in / 2, out], two inputs of an output to a byte, and both scales are largest magnitudes.
StoredFormat fastdeploy_w4a8(bool permuted);

// That of down_proj, whose inputs FastDeploy multiplies by the Hadamard matrix of `block` inputs
// (ones and minus ones, without a factor) before it rounds them. Values are those of the elements
// times that matrix; inputs must be whole blocks.
StoredFormat fastdeploy_w4a8_rotated(bool permuted, int block);

}  // namespace skiff::model
