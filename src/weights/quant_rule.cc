#include "weights/quant_rule.h"

#include <algorithm>
#include <cmath>

#include "tensor/convert.h"
#include "weights/codes.h"

namespace skiff {
float rounded_scale(float x, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return x;
    case DType::kF16:
      return to_float(to_f16(x));
    case DType::kBF16:
      return to_float(to_bf16(x));
    default:
      SKIFF_CHECK(false, "a scale of {}", name(dtype));
  }
}

namespace {

float exact_scale(QuantRule rule, bool four_bits, float low, float high) {
  const float largest = std::max(-low, high);
  switch (rule) {
    case QuantRule::kPaddle:
      return largest / (four_bits ? 7.0f : 127.0f);
    case QuantRule::kAbsMax:
      return largest / (four_bits ? 7.5f : 127.0f);
    case QuantRule::kSignedExtreme:
      return (high >= -low ? high : low) / -8.0f;
    case QuantRule::kFloat8:
      return largest / 448.0f;
  }
  SKIFF_CHECK(false, "rule {}", static_cast<int>(rule));
}

unsigned integer_code(float value, float low, float high) {
  return static_cast<unsigned>(static_cast<int>(std::clamp(value, low, high)));
}

}  // namespace

bool fits(QuantRule rule, const WeightFormat& format) {
  if (!format.quantized() || format.zero || !has_meaning(format)) return false;
  switch (rule) {
    case QuantRule::kPaddle:
    case QuantRule::kAbsMax:
      return format.dtype == DType::kI8 || format.dtype == DType::kI4;
    case QuantRule::kSignedExtreme:
      return format.dtype == DType::kI4;
    case QuantRule::kFloat8:
      return format.dtype == DType::kF8E4M3;
  }
  return false;
}

BlockScale block_scale(QuantRule rule, DType element, DType scale, float low, float high) {
  const float exact = exact_scale(rule, bits(element) == 4, low, high);
  const float stored = rounded_scale(exact, scale);
  if (stored == 0) return {};
  return {.divisor = rule == QuantRule::kPaddle ? exact : stored, .stored = stored};
}

unsigned code_of(QuantRule rule, DType element, float quotient) {
  if (std::isnan(quotient)) quotient = 0;
  const bool four_bits = bits(element) == 4;
  switch (rule) {
    case QuantRule::kPaddle: {
      const float most = four_bits ? 7 : 127;
      return integer_code(std::round(quotient), -most, most);
    }
    case QuantRule::kAbsMax:
      return integer_code(std::nearbyint(quotient), four_bits ? -8 : -127, four_bits ? 7 : 127);
    case QuantRule::kSignedExtreme:
      return integer_code(std::nearbyint(quotient), -8, 7);
    case QuantRule::kFloat8:
      return to_e4m3(quotient);
  }
  SKIFF_CHECK(false, "rule {}", static_cast<int>(rule));
}

}  // namespace skiff
