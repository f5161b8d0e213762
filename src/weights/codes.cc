#include "weights/codes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/convert.h"

namespace skiff {
namespace {

constexpr int kMantissaBits = 3, kMinExponent = -6;  // the format e4m3
constexpr float kMaxE4m3 = 448;

// OCP Microscaling Formats 1.0, table 5 (FP4 E2M1), without the sign.
constexpr std::array<float, 8> kE2m1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

unsigned nibble(const void* data, int64_t index) {
  const unsigned byte = static_cast<const uint8_t*>(data)[index / 2];
  return index % 2 ? byte >> 4 : byte & 15;
}

}  // namespace

float from_e4m3(uint8_t code) {
  const int exponent = code >> kMantissaBits & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return NAN;
  const float size = exponent == 0
                         ? std::ldexp(static_cast<float>(mantissa), kMinExponent - kMantissaBits)
                         : std::ldexp(static_cast<float>(8 + mantissa), exponent - 7 - 3);
  return code & 0x80 ? -size : size;
}

uint8_t to_e4m3(float x) {
  const unsigned sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return 0x7f;
  const float size = std::min(std::abs(x), kMaxE4m3);
  // The distance between neighbours of `size`; ldexp and nearbyint are exact.
  int exponent = kMinExponent;
  if (size >= std::ldexp(1.0f, kMinExponent)) exponent = std::ilogb(size);
  const auto steps =
      static_cast<unsigned>(std::nearbyint(std::ldexp(size, kMantissaBits - exponent)));
  // A mantissa that was rounded up to 16 carries into the exponent.
  const unsigned biased = static_cast<unsigned>(exponent - kMinExponent) << kMantissaBits;
  return static_cast<uint8_t>(sign | (biased + steps));
}

float code_value(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kF16:
      return to_float(static_cast<const F16*>(data)[index]);
    case DType::kBF16:
      return to_float(static_cast<const BF16*>(data)[index]);
    case DType::kF8E4M3:
      return from_e4m3(static_cast<const uint8_t*>(data)[index]);
    case DType::kF4E2M1: {
      const unsigned code = nibble(data, index);
      return code & 8 ? -kE2m1[code & 7] : kE2m1[code & 7];
    }
    case DType::kI8:
      return static_cast<const int8_t*>(data)[index];
    case DType::kU8:
      return static_cast<const uint8_t*>(data)[index];
    case DType::kI4:
      return static_cast<float>(static_cast<int>(nibble(data, index) ^ 8) - 8);
    case DType::kU4:
      return static_cast<float>(nibble(data, index));
    case DType::kI32:
    case DType::kI64:
      break;
  }
  SKIFF_CHECK(false, "elements of {}", name(dtype));
}

void store_code(void* data, DType dtype, int64_t index, unsigned bits) {
  auto* bytes = static_cast<uint8_t*>(data);
  if (skiff::bits(dtype) == 8) {
    bytes[index] = static_cast<uint8_t>(bits);
    return;
  }
  SKIFF_CHECK_EQ(skiff::bits(dtype), 4);
  uint8_t& byte = bytes[index / 2];
  const unsigned shift = index % 2 ? 4 : 0;
  byte = static_cast<uint8_t>((byte & ~(15u << shift)) | (bits & 15u) << shift);
}

bool is_small_integer(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI4 || dtype == DType::kU4;
}

bool is_wide_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace skiff
