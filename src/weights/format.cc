#include "weights/format.h"

#include <array>

#include "weights/codes.h"

namespace skiff {
namespace {

std::string extent(int block) { return block == 0 ? "all" : std::to_string(block); }

}  // namespace

bool has_meaning(const WeightFormat& format) {
  if (!format.quantized())
    return format == WeightFormat{DType::kF32} || format == WeightFormat{DType::kBF16};
  const bool integers = is_small_integer(format.dtype);
  if (!integers && format.dtype != DType::kF8E4M3 && format.dtype != DType::kF4E2M1) return false;
  if (!is_wide_float(*format.scale) || format.block_out < 0 || format.block_in < 0) return false;
  if (format.zero && !(integers && (is_small_integer(*format.zero) || is_wide_float(*format.zero))))
    return false;
  if (!format.input) return true;
  const DType input = format.input->dtype;
  return !format.zero && (input == DType::kI8 || input == DType::kF8E4M3);
}

std::string describe(const WeightFormat& format) {
  std::string text(name(format.dtype));
  if (!format.quantized()) return text;
  text += fmt::format(" with a {} scale", name(*format.scale));
  if (format.zero) text += fmt::format(" and a {} zero point", name(*format.zero));
  text += fmt::format(" for each {} x {}", extent(format.block_out), extent(format.block_in));
  if (!format.input) return text;
  constexpr std::array<std::string_view, 3> kScales = {"row", "128 of a row", "layer"};
  return text + fmt::format(", times {} activations with a scale for each {}",
                            name(format.input->dtype), kScales.at(format.input->scales));
}

}  // namespace skiff
