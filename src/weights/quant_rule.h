// weights/quant_rule.h -- how floats become the elements and scales of a quantized weight.
#pragma once
#include <cstdint>

#include "weights/format.h"

namespace skiff {

// For each block of a WeightFormat, with amax the largest magnitude in it. Scales are rounded to
// the format's dtype before elements are divided by them, but for kPaddle's. A block whose scale
// would be zero has scale 1, and elements of zero.
enum class QuantRule : uint8_t {
  // Symmetric integers: scale amax / 127 or amax / 7, elements rounded to nearest with ties away
  // from zero and clipped to +-127 or +-7. Elements are divided by the float32 scale, which is
  // rounded to its dtype only when stored: what Paddle's weight_quantize does on a GPU.
  kPaddle,
  // Symmetric integers: scale amax / 127 or amax / 7.5, ties to even: [-127, 127] or [-8, 7].
  kAbsMax,
  // Four bits: the scale is the element of largest magnitude, with its sign, divided by -8 (of two
  // with opposite signs, the positive one); scales may be negative, and that element is exact but
  // for its scale's rounding. Ties to even: [-8, 7].
  kSignedExtreme,
  // Eight-bit floats: scale amax / 448, elements rounded to nearest even and clipped to +-448.
  kFloat8,
};

// Returns x rounded to the dtype of a scale: kF32, kF16 or kBF16.
float rounded_scale(float x, DType dtype);

// Returns whether the rule makes weights of that format.
bool fits(QuantRule rule, const WeightFormat& format);

// The scale of a block: what its elements are divided by, and what is stored.
struct BlockScale {
  float divisor = 1, stored = 1;
};
// The scale, of dtype `scale`, of a block of elements of dtype `element` that come from values
// within [low, high].
BlockScale block_scale(QuantRule rule, DType element, DType scale, float low, float high);
// The bits of the element that comes from value / divisor.
unsigned code_of(QuantRule rule, DType element, float quotient);

}  // namespace skiff
