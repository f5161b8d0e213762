#include "tensor/convert.h"

#include <cmath>

namespace skiff {

float to_float(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t exponent = x.bits >> 10 & 0x1f, mantissa = x.bits & 0x3ff;
  if (exponent == 0) {
    const float tiny = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -tiny : tiny;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

F16 to_f16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(u >> 16 & 0x8000);
  const uint32_t magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};
  if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds to inf
  if (magnitude < 0x38800000) {  // subnormal: the value in units of 2^-24, ties to even
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)))};
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13))};
}

namespace {

template <class D, class S>
void convert_rows(Tensor dst, Tensor src) {
  for (int64_t r = 0; r < src.rows(); ++r) {
    D* d = dst.row<D>(r);
    const S* s = src.row<S>(r);
    for (int64_t c = 0; c < src.cols(); ++c) d[c] = from_float<D>(to_float(s[c]));
  }
}

template <class D>
void convert_to(Tensor dst, Tensor src) {
  switch (src.dtype) {
    case DType::kF32:
      return convert_rows<D, float>(dst, src);
    case DType::kF16:
      return convert_rows<D, F16>(dst, src);
    case DType::kBF16:
      return convert_rows<D, BF16>(dst, src);
    default:
      SKIFF_CHECK(false, "convert from {}", name(src.dtype));
  }
}

}  // namespace

void convert(Tensor dst, Tensor src) {
  SKIFF_CHECK_EQ(dst.rows(), src.rows());
  SKIFF_CHECK_EQ(dst.cols(), src.cols());
  switch (dst.dtype) {
    case DType::kF32:
      return convert_to<float>(dst, src);
    case DType::kF16:
      return convert_to<F16>(dst, src);
    case DType::kBF16:
      return convert_to<BF16>(dst, src);
    default:
      SKIFF_CHECK(false, "convert to {}", name(dst.dtype));
  }
}

}  // namespace skiff
