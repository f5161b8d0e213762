#include "ops/reference/math.h"

#include <cmath>
#include <numbers>

namespace skiff::reference {

double dot(std::span<const float> a, std::span<const float> b) {
  SKIFF_CHECK_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

double activate(double x, Act act) {
  switch (act) {
    case Act::kSilu:
      return x / (1 + std::exp(-x));
    case Act::kGelu:
      return x * 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
  }
  return x;
}

void rms_norm(std::span<float> x, const Norm& norm) {
  SKIFF_CHECK_EQ(static_cast<int64_t>(x.size()), norm.weight.elements());
  const float* weight = norm.weight.as<float>();
  const double mean_square = dot(x, x) / static_cast<double>(x.size());
  const double scale = 1 / std::sqrt(mean_square + norm.eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(x[i] * scale * weight[i]);
}

void rotate(std::span<float> head, const Rope& rope, std::span<const float> speeds, int position) {
  const size_t half = speeds.size();
  const float gain = rope_gain(rope);
  for (size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * speeds[i];
    const float c = std::cos(angle) * gain, s = std::sin(angle) * gain;
    float& a = head[rope.interleaved ? 2 * i : i];
    float& b = head[rope.interleaved ? 2 * i + 1 : i + half];
    const float x = a, y = b;
    a = x * c - y * s;
    b = y * c + x * s;
  }
}

}  // namespace skiff::reference
