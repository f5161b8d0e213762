// model/formats/eight_bits.h -- formats whose elements are bytes, [out, in], beside their scales;
// also integers of four bits that have a byte each.
#pragma once
#include "model/quantization.h"

namespace skiff::model {

// What the scales of a weight are for.
enum class ScaleOf : uint8_t { kTensor, kOutput, kBlock };

struct EightBits {
  std::string name;
  DType dtype = DType::kF8E4M3;  // or kI8
  ScaleOf scales = ScaleOf::kOutput;
  int block_out = 0, block_in = 0;  // kBlock
  std::vector<std::string_view> scale_suffixes = {".weight_scale"};
  bool flat = false;  // kOutput: scales are [out] instead of [out, 1]
  std::optional<InputFormat> input;
  bool four = false;  // kI8: all elements are within [-8, 7], and are kept in four bits
  bool zero =
      false;  // kI8, not with `four`: with tensors .weight_zero_point in the shape of the scales
};

// The scale of a whole tensor becomes one for each output, so that tensors with different scales
// can be multiplied as one.
StoredFormat eight_bit_format(const EightBits& what);

}  // namespace skiff::model
