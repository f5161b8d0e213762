// tensor/convert.h -- 16-bit floats to float and back, round to nearest even.
#pragma once
#include <bit>
#include <cstdint>

#include "tensor/tensor.h"

namespace skiff {

inline float to_float(float x) { return x; }
inline float to_float(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
float to_float(F16 x);

inline BF16 to_bf16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(u >> 16 | 0x40)};  // NaN
  return {static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
F16 to_f16(float x);

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline BF16 from_float<BF16>(float x) {
  return to_bf16(x);
}
template <>
inline F16 from_float<F16>(float x) {
  return to_f16(x);
}

// Writes src's values to dst. Their shapes are equal, their dtypes any of kF32, kF16 and kBF16.
void convert(Tensor dst, Tensor src);

}  // namespace skiff
