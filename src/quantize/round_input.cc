#include "quantize/round_input.h"

#include <algorithm>
#include <cmath>

#include "weights/codes.h"

namespace skiff::quantize {
namespace {

void round_group(float* x, int64_t n, DType dtype, float least) {
  float largest = least;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  const bool integers = dtype == DType::kI8;
  const float scale = largest > 0 ? largest / (integers ? 127.0f : 448.0f) : 1;
  for (int64_t i = 0; i < n; ++i) {
    const float quotient = x[i] / scale;
    x[i] = scale * (integers ? std::clamp(std::nearbyint(quotient), -128.0f, 127.0f)
                             : from_e4m3(to_e4m3(quotient)));
  }
}

}  // namespace

void round_input(float* rows, int64_t count, int64_t cols, const InputFormat& input) {
  SKIFF_CHECK(input.scales != InputFormat::kStatic, "static scales of activations");
  const bool groups = input.scales == InputFormat::kGroups;
  const int64_t wide = groups ? InputFormat::kGroup : cols;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < cols; c += wide)
      round_group(rows + r * cols + c, std::min(wide, cols - c), input.dtype,
                  groups ? InputFormat::kLeastMax : 0);
}

}  // namespace skiff::quantize
