#include "ops/kv_quant.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace skiff {
namespace {

constexpr int kGroup = 32;
constexpr float kLeastScale = 0x1p-64f;

float most_scale(DType dtype) { return dtype == DType::kF8E4M3 ? 0x1p7f : 0x1p64f; }
float most_element(DType dtype) { return dtype == DType::kF8E4M3 ? 448.0f : 127.0f; }

// `low` where x is not a number.
float clip(float x, float low, float high) {
  if (!(x > low)) return low;
  return x > high ? high : x;
}

// To the nearest integer, ties to even, for |x| up to 2^21.
float round_even(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return (x + kMagic) - kMagic;
}

BF16 scale_for(DType dtype, float scale) {
  return to_bf16(clip(scale, kLeastScale, most_scale(dtype)));
}

// |x| <= 448.
uint8_t to_e4m3(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>(u >> 24 & 0x80);
  const uint32_t size = u & 0x7fffffff;
  const float magnitude = std::bit_cast<float>(size);
  if (magnitude < 0x1p-6f)
    return sign | static_cast<uint8_t>(round_even(magnitude * 512));  // subnormal
  constexpr uint32_t kBias = (127 - 7) << 3;
  return sign | static_cast<uint8_t>(((size + 0x7ffff + (size >> 20 & 1)) >> 20) - kBias);
}

// NaN codes give +-480: they are never stored.
float from_e4m3(uint8_t q) {
  const auto size = std::bit_cast<float>(static_cast<uint32_t>(q & 0x7f) << 20) * 0x1p120f;
  return q & 0x80 ? -size : size;
}

void quantize_signed(const KvFormat& format, std::span<const float> x, const KvHead& to) {
  const float most = most_element(format.dtype);
  if (!format.fixed) {
    float amax = 0;
    for (const float v : x) amax = std::abs(v) > amax ? std::abs(v) : amax;
    *to.scales = scale_for(format.dtype, amax / most);
  }
  const float scale = to_float(*to.scales);
  for (size_t i = 0; i < x.size(); ++i) {
    const float q = clip(x[i] / scale, -most, most);
    to.elements[i] = format.dtype == DType::kI8
                         ? static_cast<std::byte>(static_cast<int8_t>(round_even(q)))
                         : static_cast<std::byte>(to_e4m3(q));
  }
}

// One group, which begins with a whole byte.
void quantize_group(std::span<const float> x, std::byte* elements, BF16* scale_and_zero) {
  float low = 0, high = 0;
  for (const float v : x) {
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  scale_and_zero[0] = scale_for(DType::kU4, (high - low) / 15);
  const float scale = to_float(scale_and_zero[0]);
  const float zero = round_even(clip(-low / scale, 0, 15));
  scale_and_zero[1] = to_bf16(zero);
  const auto element = [&](size_t i) {
    return static_cast<uint8_t>(clip(round_even(clip(x[i] / scale, -16, 16)) + zero, 0, 15));
  };
  for (size_t i = 0; i < x.size(); i += 2)
    elements[i / 2] = static_cast<std::byte>(element(i) | element(i + 1) << 4);
}

}  // namespace

KvFormat kv_format(DType dtype) {
  if (dtype == DType::kU4) return {.dtype = dtype, .group = kGroup, .zero = true};
  return {.dtype = dtype};
}

std::string describe(const KvFormat& format) {
  const std::string elements(format.dtype == DType::kU4 ? "int4" : name(format.dtype));
  return format.fixed ? elements + " with fixed scales" : elements;
}

int kv_scales(const KvFormat& format, int head_dim) {
  if (!format.quantized() || format.fixed) return 0;
  const int groups = format.group == 0 ? 1 : (head_dim + format.group - 1) / format.group;
  return groups * (format.zero ? 2 : 1);
}

KvHead kv_head(const Tensor& pages, const Tensor& scales, const KvFormat& format, int64_t page,
               int64_t in_page, int64_t head) {
  const int64_t at = page * pages.row_stride + (in_page * pages.dim[2] + head) * pages.dim[3];
  auto* elements = static_cast<std::byte*>(pages.data) + byte_size(pages.dtype, at);
  const int64_t scale =
      format.fixed ? head
                   : page * scales.row_stride + (head * scales.dim[2] + in_page) * scales.dim[3];
  return {elements, scales.as<BF16>() + scale};
}

void quantize(const KvFormat& format, std::span<const float> x, const KvHead& to) {
  if (format.dtype != DType::kU4) return quantize_signed(format, x, to);
  SKIFF_CHECK(format.zero && !format.fixed && x.size() % 2 == 0, "{} elements", x.size());
  const auto group = static_cast<size_t>(format.group);
  for (size_t i = 0; i < x.size(); i += group)
    quantize_group(x.subspan(i, std::min(group, x.size() - i)), to.elements + i / 2,
                   to.scales + 2 * (i / group));
}

void dequantize(const KvFormat& format, const KvHead& from, std::span<float> x) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (format.dtype == DType::kU4) {
      const BF16* group = from.scales + 2 * (i / static_cast<size_t>(format.group));
      const auto pair = static_cast<uint8_t>(from.elements[i / 2]);
      const auto q = static_cast<float>(i % 2 == 0 ? pair & 15 : pair >> 4);
      x[i] = to_float(to_bf16(to_float(group[0]) * (q - to_float(group[1]))));
      continue;
    }
    const auto q = static_cast<uint8_t>(from.elements[i]);
    const float value =
        format.dtype == DType::kI8 ? static_cast<float>(static_cast<int8_t>(q)) : from_e4m3(q);
    x[i] = to_float(to_bf16(to_float(*from.scales) * value));
  }
}

}  // namespace skiff
