#include "ops/reference/weights.h"

#include <algorithm>
#include <cmath>

#include "ops/reference/rows.h"
#include "weights/codes.h"

namespace skiff::reference {
namespace {

// Rounds the values, which share a scale, to elements of `dtype`.
void round_to(std::span<float> x, DType dtype, float scale) {
  for (float& v : x) {
    const float quotient = v / scale;
    const float code = dtype == DType::kI8 ? std::clamp(std::nearbyint(quotient), -128.0f, 127.0f)
                                           : from_e4m3(to_e4m3(quotient));
    v = code * scale;
  }
}

float largest(std::span<const float> x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::abs(v));
  return most;
}

void round_input(std::span<float> x, const InputFormat& format, const Tensor& input_scale) {
  const float codes = format.dtype == DType::kI8 ? 127.0f : 448.0f;
  if (format.scales == InputFormat::kStatic)
    return round_to(x, format.dtype, input_scale.as<float>()[0]);
  if (format.scales == InputFormat::kToken) {
    const float most = largest(x);
    return round_to(x, format.dtype, most == 0 ? 1.0f : most / codes);
  }
  for (size_t i = 0; i < x.size(); i += InputFormat::kGroup) {
    const auto group = x.subspan(i, std::min<size_t>(InputFormat::kGroup, x.size() - i));
    round_to(group, format.dtype, std::max(largest(group), InputFormat::kLeastMax) / codes);
  }
}

}  // namespace

std::vector<float> weight_row(const Linear& w, int64_t out) {
  SKIFF_CHECK(w.packing == Packing::kPlain && w.experts == 0);
  const WeightFormat& format = w.format;
  SKIFF_CHECK(format.dtype == w.weight.dtype, "{} in a tensor of {}", describe(format),
              name(w.weight.dtype));
  if (!format.quantized()) return load_row(w.weight, out);
  const int64_t in = w.weight.cols(), blocks = num_blocks(in, format.block_in);
  const int64_t block_row = format.block_out ? out / format.block_out : 0;
  std::vector<float> row;
  for (int64_t i = 0; i < in; ++i) {
    const int64_t block = block_row * blocks + (format.block_in ? i / format.block_in : 0);
    const double scale = code_value(w.scale.data, *format.scale, block);
    const double code = code_value(w.weight.data, format.dtype, out * in + i);
    const double zero = format.zero ? code_value(w.zero.data, *format.zero, block) : 0;
    const bool minimum = format.zero && is_wide_float(*format.zero);
    row.push_back(static_cast<float>(minimum ? scale * code - zero : scale * (code - zero)));
  }
  return row;
}

std::vector<float> input_row(const Linear& w, std::vector<float> x) {
  std::vector<float> ordered;
  for (int64_t i = 0; w.order && i < w.order.elements(); ++i)
    ordered.push_back(x.at(static_cast<size_t>(w.order.as<int32_t>()[i])));
  if (w.order) x = std::move(ordered);
  if (w.format.input) round_input(x, *w.format.input, w.input_scale);
  return x;
}

Linear expert_of(const Linear& stack, int64_t index) {
  SKIFF_CHECK(index >= 0 && index < stack.experts, "expert {} of {}", index, stack.experts);
  Linear one = stack;
  one.weight = stack_entry(stack.weight, index);
  if (stack.scale) one.scale = stack_entry(stack.scale, index);
  if (stack.zero) one.zero = stack_entry(stack.zero, index);
  if (stack.input_scale) one.input_scale = stack.input_scale.row_range(index, 1);
  one.experts = 0;
  return one;
}

}  // namespace skiff::reference
