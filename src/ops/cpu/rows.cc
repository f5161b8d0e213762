#include "ops/cpu/rows.h"

#include <algorithm>
#include <cstring>

namespace skiff::cpu {
namespace {

void to_f32(const Kernels& k, float* dst, const void* src, DType from, int64_t n) {
  const auto* halves = static_cast<const uint16_t*>(src);
  if (from == DType::kBF16) return k.bf16_to_f32(dst, halves, n);
  SKIFF_CHECK(from == DType::kF16, "no floats in {}", name(from));
  k.f16_to_f32(dst, halves, n);
}

}  // namespace

void copy_row(const Kernels& k, void* dst, DType to, const void* src, DType from, int64_t n) {
  if (n == 0) return;
  if (to == from) {
    std::memcpy(dst, src, static_cast<size_t>(n) * bytes(to));
    return;
  }
  if (to == DType::kF32) return to_f32(k, static_cast<float*>(dst), src, from, n);
  SKIFF_CHECK(to == DType::kBF16, "cannot write {}", name(to));
  auto* out = static_cast<uint16_t*>(dst);
  if (from == DType::kF32) return k.f32_to_bf16(out, static_cast<const float*>(src), n);
  constexpr int64_t kStep = 256;
  float wide[kStep];
  for (int64_t i = 0; i < n; i += kStep) {
    const int64_t count = std::min(kStep, n - i);
    to_f32(k, wide, static_cast<const uint16_t*>(src) + i, from, count);
    k.f32_to_bf16(out + i, wide, count);
  }
}

std::byte* row_data(const Tensor& t, int64_t r) {
  return static_cast<std::byte*>(t.data) + static_cast<size_t>(r * t.row_stride) * bytes(t.dtype);
}

}  // namespace skiff::cpu
