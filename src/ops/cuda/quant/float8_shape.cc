#include "ops/cuda/quant/float8_shape.h"

namespace skiff::cuda {
namespace {

size_t up(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Float8Places float8_places(const Float8Rows& rows, bool bias) {
  Float8Places p;
  p.scales = up(static_cast<size_t>(rows.matrices() * rows.out * rows.in));
  p.bias =
      p.scales + up(static_cast<size_t>(rows.matrices() * rows.scale_rows() * rows.scale_stride()) *
                    sizeof(float));
  p.end = p.bias + (bias ? up(static_cast<size_t>(rows.out) * sizeof(float)) : 0);
  return p;
}

bool keeps_float8_rows(const WeightFormat& format, int64_t experts, int64_t out, int64_t in) {
  constexpr int kBlock = Float8Rows::kBlock;
  const int64_t step = experts > 0 ? 2 * kBlock : 16;
  return format.dtype == DType::kF8E4M3 && format.block_out == kBlock &&
         format.block_in == kBlock && format.scale == DType::kF32 && !format.zero &&
         format.input == InputFormat{DType::kF8E4M3, InputFormat::kGroups} && out % step == 0 &&
         in % kBlock == 0;
}

}  // namespace skiff::cuda
