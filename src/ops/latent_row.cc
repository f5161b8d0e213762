#include "ops/latent_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/convert.h"
#include "weights/codes.h"

namespace skiff {
namespace {

// The least power of two that is not below amax / 448, within bounds.
float scale_for(float amax) {
  const float least = std::clamp(amax / 448.0f, 0x1p-64f, 0x1p7f);
  const auto bits = std::bit_cast<uint32_t>(least);
  return std::bit_cast<float>((bits + 0x7fffff) & 0xff800000);
}

void quantize_group(std::span<const float> x, std::byte* elements, std::byte* scale_at) {
  float amax = 0;
  for (const float v : x) amax = std::abs(v) > amax ? std::abs(v) : amax;
  const float scale = scale_for(amax);
  std::memcpy(scale_at, &scale, sizeof scale);
  for (size_t i = 0; i < x.size(); ++i) {
    const float q = x[i] / scale;
    elements[i] = static_cast<std::byte>(to_e4m3(q > -448 ? std::min(q, 448.0f) : -448.0f));
  }
}

}  // namespace

std::byte* latent_row(const Tensor& pages, int64_t page, int64_t in_page) {
  return static_cast<std::byte*>(pages.data) + page * pages.row_stride + in_page * pages.dim[3];
}

void quantize_latent(const LatentRow& shape, std::span<const float> x, std::byte* row) {
  const auto rank = static_cast<size_t>(shape.rank), rope = static_cast<size_t>(shape.rope);
  SKIFF_CHECK_EQ(x.size(), rank + rope);
  std::fill(row + rank, row + shape.bytes(), std::byte{0});
  std::byte* scale = row + shape.scales_at();
  for (size_t i = 0; i < rank; i += kLatentGroup, scale += sizeof(float))
    quantize_group(x.subspan(i, std::min<size_t>(kLatentGroup, rank - i)), row + i, scale);
  std::byte* to = row + shape.rope_at();
  for (const float v : x.last(rope)) {
    const uint16_t bits = to_bf16(v).bits;
    std::memcpy(to, &bits, sizeof bits);
    to += sizeof bits;
  }
}

void dequantize_latent(const LatentRow& shape, const std::byte* row, std::span<float> x) {
  const auto rank = static_cast<size_t>(shape.rank);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i < rank) {
      float scale;
      std::memcpy(&scale, row + shape.scales_at() + i / kLatentGroup * sizeof scale, sizeof scale);
      x[i] = scale * from_e4m3(static_cast<uint8_t>(row[i]));
    } else {
      BF16 value;
      std::memcpy(&value.bits, row + shape.rope_at() + 2 * (i - rank), sizeof value.bits);
      x[i] = to_float(value);
    }
  }
}

}  // namespace skiff
