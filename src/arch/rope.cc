#include <algorithm>
#include <cmath>

#include "arch/spec.h"

namespace skiff {
namespace {

// The pair of dimensions, as a real number, that turns `turns` times within the original context.
double pair_that_turns(const Rope& rope, const YarnScaling& s, double turns) {
  constexpr double kTwoPi = 6.283185307179586;
  return rope.dim * std::log(s.original_ctx / (turns * kTwoPi)) / (2 * std::log(rope.theta));
}

struct Stretch {
  const Rope& rope;
  size_t pair;  // the number of the pair of dimensions

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
  // Bounds are clipped to [0, dim - 1] as published, although there are only dim / 2 pairs.
  float operator()(const YarnScaling& s, float speed) const {
    const double last = rope.dim - 1;
    const double low = std::max(std::floor(pair_that_turns(rope, s, s.beta_fast)), 0.0);
    double high = std::min(std::ceil(pair_that_turns(rope, s, s.beta_slow)), last);
    if (low == high) high += 0.001;
    const auto ramp =
        static_cast<float>(std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0));
    return speed / s.factor * ramp + speed * (1 - ramp);
  }
};

}  // namespace

std::vector<float> rope_frequencies(const Rope& rope) {
  std::vector<float> speeds(static_cast<size_t>(rope.dim / 2));
  for (size_t i = 0; i < speeds.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.dim);
    const float speed = 1.0f / std::pow(rope.theta, exponent);
    speeds[i] = std::visit(
        [&](const auto& scaling) {
          return Stretch{rope, i}(scaling, speed);
        },
        rope.scaling);
  }
  return speeds;
}

float rope_gain(const Rope& rope) {
  const auto* yarn = std::get_if<YarnScaling>(&rope.scaling);
  return yarn ? yarn->attention_factor : 1;
}

}  // namespace skiff
