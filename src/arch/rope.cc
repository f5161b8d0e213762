#include <cmath>

#include "arch/spec.h"

namespace skiff {
namespace {

struct Stretch {
  size_t pair;  // of dimensions

  float operator()(std::monostate, float speed) const { return speed; }
  float operator()(const LinearScaling& s, float speed) const { return speed / s.factor; }
  float operator()(const Llama3Scaling& s, float speed) const {
    constexpr float kTwoPi = 6.283185307179586f;
    const float wavelength = kTwoPi / speed;
    const auto ctx = static_cast<float>(s.original_ctx);
    if (wavelength < ctx / s.high_factor) return speed;
    if (wavelength > ctx / s.low_factor) return speed / s.factor;
    const float smooth = (ctx / wavelength - s.low_factor) / (s.high_factor - s.low_factor);
    return (1 - smooth) * speed / s.factor + smooth * speed;
  }
  float operator()(const FactorScaling& s, float speed) const { return speed / s.factors.at(pair); }
};

}  // namespace

std::vector<float> rope_frequencies(const Rope& rope) {
  std::vector<float> speeds(static_cast<size_t>(rope.dim / 2));
  for (size_t i = 0; i < speeds.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.dim);
    const float speed = 1.0f / std::pow(rope.theta, exponent);
    speeds[i] =
        std::visit([&](const auto& scaling) { return Stretch{i}(scaling, speed); }, rope.scaling);
  }
  return speeds;
}

}  // namespace skiff
