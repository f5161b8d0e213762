#include "quantize/round_input.h"

#include <algorithm>
#include <cmath>

#include "weights/codes.h"

namespace skiff::quantize {
namespace {

float largest_of(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

void round_group(float* x, int64_t n, DType dtype, float largest) {
  const bool integers = dtype == DType::kI8;
  const float scale = largest > 0 ? largest / (integers ? 127.0f : 448.0f) : 1;
  for (int64_t i = 0; i < n; ++i) {
    const float quotient = x[i] / scale;
    x[i] = scale * (integers ? std::clamp(std::nearbyint(quotient), -128.0f, 127.0f)
                             : from_e4m3(to_e4m3(quotient)));
  }
}

}  // namespace

void round_input(float* rows, int64_t count, int64_t cols, const RoundedInput& input) {
  const InputFormat& format = input.format;
  if (format.scales == InputFormat::kStatic) {
    const int64_t all = count * cols;
    return round_group(rows, all, format.dtype,
                       input.largest > 0 ? input.largest : largest_of(rows, all));
  }
  const bool groups = format.scales == InputFormat::kGroups;
  const int64_t wide = groups ? InputFormat::kGroup : cols;
  const float least = groups ? InputFormat::kLeastMax : 0;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < cols; c += wide) {
      const int64_t n = std::min(wide, cols - c);
      float* group = rows + r * cols + c;
      round_group(group, n, format.dtype, std::max(least, largest_of(group, n)));
    }
}

}  // namespace skiff::quantize
