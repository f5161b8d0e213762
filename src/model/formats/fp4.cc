#include "model/formats/fp4.h"

#include <cmath>

#include "base/load_error.h"
#include "base/log.h"
#include "model/stored_numbers.h"
#include "weights/codes.h"

namespace skiff::model {
namespace {

std::vector<int64_t> half_bytes(const ModuleShape& m, const StoredFormat&) {
  return {m.out, (m.in + 1) / 2};
}

void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& bytes = *m.of(Role::kWeight);
  const int64_t pitch = bytes.entry->shape[1];
  for (int64_t r = 0; r < region.rows; ++r)
    for (int64_t c = 0; c < region.cols; ++c) {
      const int64_t k = region.col + c;
      const unsigned two = stored<uint8_t>(bytes, (region.row + r) * pitch + k / 2);
      to[r * region.cols + c] = static_cast<std::byte>(two >> (k % 2 * 4) & 15);
    }
}

float whole_scale(const StoredModule& m) {
  const StoredTensor& tensor = *m.of(Role::kScaleOfScales);
  const float scale = stored_float(tensor, 0);
  if (!std::isfinite(scale) || scale == 0)
    fail_load("tensor \"{}\": the scale is {}", escaped(tensor.entry->name), scale);
  return scale;
}

template <bool kDivides>
void group_scales(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *m.of(Role::kScale);
  const int64_t across = blocks_in(m.shape.in, m.format->values.block_in);
  const float whole = whole_scale(m);
  for (int64_t i = rows.first * across; i < (rows.first + rows.count) * across; ++i) {
    const float scale = from_e4m3(stored<uint8_t>(tensor, i));
    *to++ = kDivides ? scale / whole : scale * whole;
  }
}

constexpr Unpacking kPowers{.elements = elements, .scales = stored_scales};
constexpr Unpacking kMultiplied{.elements = elements, .scales = group_scales<false>};
constexpr Unpacking kDivided{.elements = elements, .scales = group_scales<true>};

WeightFormat values(int group) {
  return {.dtype = DType::kF4E2M1, .block_out = 1, .block_in = group, .scale = DType::kF32};
}

}  // namespace

StoredFormat mxfp4_format() {
  return {.name = "MXFP4",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".weight_packed"},
                       .dtypes = {"U8"},
                       .shape = half_bytes},
                      {.role = Role::kScale,
                       .suffixes = {".weight_scale"},
                       .dtypes = {"U8", "F8_E8M0"},
                       .shape = shape_of_blocks},
                      bias_rule()},
          .values = values(32),
          .unpacking = &kPowers,
          .bits = 4};
}

StoredFormat nvfp4_format(const Nvfp4& what) {
  return {.name = what.name,
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {what.weight},
                       .dtypes = {"U8"},
                       .shape = half_bytes},
                      {.role = Role::kScale,
                       .suffixes = {".weight_scale"},
                       .dtypes = {"F8_E4M3"},
                       .shape = shape_of_blocks},
                      {.role = Role::kScaleOfScales,
                       .suffixes = {what.whole},
                       .dtypes = {"F32"},
                       .shape = shape_of_one},
                      bias_rule()},
          .values = values(16),
          .unpacking = what.divides ? &kDivided : &kMultiplied,
          .bits = 4};
}

}  // namespace skiff::model
