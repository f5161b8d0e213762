#include "model/formats/modelopt_awq.h"

#include <cmath>
#include <cstring>

#include "base/log.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

std::vector<int64_t> two_outputs_a_byte(const ModuleShape& m, const StoredFormat&) {
  return {(m.out + 1) / 2, m.in};
}

int64_t groups(const ModuleShape& m, const StoredFormat& f) {
  return blocks_in(m.in, f.values.block_in ? f.values.block_in : f.group);
}
std::vector<int64_t> scales_by_group(const ModuleShape& m, const StoredFormat& f) {
  return {m.out, groups(m, f)};
}

// The output with the even number is in the low half, in two's complement.
int element(const StoredModule& m, int64_t out, int64_t in) {
  const unsigned two = stored<uint8_t>(*m.of(Role::kWeight), out / 2 * m.shape.in + in);
  const auto four = static_cast<int>(two >> (out % 2 * 4) & 15);
  return four < 8 ? four : four - 16;
}

void elements(const StoredModule& m, const Region& region, std::byte* to) {
  for (int64_t r = region.row; r < region.row + region.rows; ++r)
    for (int64_t c = region.col; c < region.col + region.cols; ++c)
      *to++ = static_cast<std::byte>(element(m, r, c));
}

// Values, rounded once.
void widened(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& scales = *m.of(Role::kScale);
  const int64_t across = groups(m.shape, *m.format);
  for (int64_t r = region.row; r < region.row + region.rows; ++r)
    for (int64_t c = region.col; c < region.col + region.cols; ++c) {
      const double scale = stored_float(scales, r * across + c / m.format->group);
      const double factor = stored_float(*m.of(Role::kInputFactor), c);
      const auto value = static_cast<float>(element(m, r, c) * scale * factor);
      if (!std::isfinite(value))
        fail_load("tensor \"{}\": the weight of output {} and input {} is {}",
                  escaped(scales.entry->name), r, c, value);
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    }
}

constexpr Unpacking kGroups{.elements = elements, .scales = stored_scales};
constexpr Unpacking kWidened{.elements = widened};

}  // namespace

StoredFormat modelopt_awq(int group) {
  return {.name = fmt::format("ModelOpt int4 (AWQ), groups of {}", group),
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".weight"},
                       .dtypes = {"U8"},
                       .shape = two_outputs_a_byte},
                      {.role = Role::kScale,
                       .suffixes = {".weight_scale"},
                       .dtypes = {"F32", "BF16", "F16"},
                       .shape = scales_by_group},
                      bias_rule()},
          .values = {.dtype = DType::kI4, .block_out = 1, .block_in = group, .scale = DType::kF32},
          .unpacking = &kGroups,
          .bits = 4};
}

StoredFormat modelopt_awq_with_factors(int group) {
  StoredFormat f = modelopt_awq(group);
  f.name += ", with factors of inputs";
  f.tensors.push_back({.role = Role::kInputFactor,
                       .suffixes = {".pre_quant_scale"},
                       .dtypes = {"F32", "BF16", "F16"},
                       .shape = shape_of_inputs});
  f.values = {.dtype = DType::kF32};
  f.group = group;
  f.unpacking = &kWidened;
  return f;
}

}  // namespace skiff::model
