// model/formats/fp4.h -- four-bit floats (E2M1), two to a byte, the first in the low half, in
// groups along the input.
#pragma once
#include "model/quantization.h"

namespace skiff::model {

// OCP Microscaling Formats 1.0: groups of 32, whose scales are powers of two.
StoredFormat mxfp4_format();

// NVIDIA's: groups of 16, whose scales are E4M3, and a scale for the whole weight, in float32.
struct Nvfp4 {
  std::string name;
  std::string_view weight, whole;  // endings of the names of the elements and of that scale
  bool divides = false;            // scales are divided by it; else they are multiplied
};
StoredFormat nvfp4_format(const Nvfp4& what);

}  // namespace skiff::model
