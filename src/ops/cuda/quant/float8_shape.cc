#include "ops/cuda/quant/float8_shape.h"

namespace skiff::cuda {
namespace {

size_t up(size_t bytes) { return (bytes + 255) / 256 * 256; }

Float8Places places_of(int64_t elements, int64_t scales, int64_t biases) {
  Float8Places p;
  p.scales = up(static_cast<size_t>(elements));
  p.bias = p.scales + up(static_cast<size_t>(scales) * sizeof(float));
  p.end = p.bias + up(static_cast<size_t>(biases) * sizeof(float));
  return p;
}

}  // namespace

Float8Places float8_places(const Float8Rows& rows, bool bias) {
  return places_of(rows.matrices() * rows.out * rows.in,
                   rows.matrices() * rows.scale_rows() * rows.scale_stride(), bias ? rows.out : 0);
}

Float8Places float8_places(const Float8Channels& channels, bool bias) {
  return places_of(channels.out * channels.in, channels.scales(), bias ? channels.out : 0);
}

bool keeps_float8_rows(const WeightFormat& format, int64_t experts, int64_t out, int64_t in) {
  constexpr int kBlock = Float8Rows::kBlock;
  const int64_t step = experts > 0 ? 2 * kBlock : 16;
  return format.dtype == DType::kF8E4M3 && format.block_out == kBlock &&
         format.block_in == kBlock && format.scale == DType::kF32 && !format.zero &&
         format.input == InputFormat{DType::kF8E4M3, InputFormat::kGroups} && out % step == 0 &&
         in % kBlock == 0;
}

bool keeps_float8_channels(const WeightFormat& format, int64_t experts, int64_t out, int64_t in) {
  return experts == 0 && format.dtype == DType::kF8E4M3 && format.block_out == 1 &&
         format.block_in == 0 && format.scale == DType::kF32 && !format.zero &&
         format.input == InputFormat{DType::kF8E4M3, InputFormat::kToken} && out % 16 == 0 &&
         in % 128 == 0;
}

}  // namespace skiff::cuda
