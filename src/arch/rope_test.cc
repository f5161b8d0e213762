#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arch/spec.h"

namespace skiff {
namespace {

// Llama 3.1's published rule evaluated in double for head size 128.
TEST(Rope, Llama3StretchesLowFrequenciesOnly) {
  const Rope rope{.theta = 500000, .dim = 128, .scaling = Llama3Scaling{8, 1, 4, 8192}};
  const std::vector<float> speeds = rope_frequencies(rope);
  ASSERT_EQ(speeds.size(), 64u);
  int kept = 0, blended = 0, slowed = 0;
  for (size_t i = 0; i < speeds.size(); ++i) {
    const double plain = std::pow(500000.0, -2.0 * static_cast<double>(i) / 128);
    const double wavelength = 2 * M_PI / plain;
    double want = plain;
    if (wavelength > 8192) {
      want = plain / 8;
      ++slowed;
    } else if (wavelength >= 2048) {
      const double smooth = (8192 / wavelength - 1) / 3;
      want = (1 - smooth) * plain / 8 + smooth * plain;
      ++blended;
    } else {
      ++kept;
    }
    // float pow, a division and the blend: a few ulp of 2^-24 each, times log(theta) for pow.
    EXPECT_NEAR(speeds[i], want, want * 16 * 0x1p-24) << i;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(blended, 2);
  EXPECT_GT(slowed, 10);
}

TEST(Rope, LinearScalingDividesPositions) {
  const Rope plain{.theta = 10000, .dim = 8};
  Rope scaled = plain;
  scaled.scaling = LinearScaling{4};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(rope_frequencies(scaled)[i] * 4, rope_frequencies(plain)[i]);
}

TEST(Rope, FactorsSlowEachPairOfDimensions) {
  const Rope plain{.theta = 10000, .dim = 8};
  Rope slowed = plain;
  slowed.scaling = FactorScaling{{1, 2, 8, 0.5f}};
  const std::vector<float> was = rope_frequencies(plain), is = rope_frequencies(slowed);
  EXPECT_EQ(is, (std::vector<float>{was[0], was[1] / 2, was[2] / 8, was[3] * 2}));
}

// DeepSeek-V3's numbers: the pairs that turn 32 times and once within 4096 positions are 10.2 and
// 22.2, so 0..10 are kept, 23..31 slowed by 40, and those between blended.
TEST(Rope, YarnSlowsWhatTurnsRarely) {
  Rope rope{.theta = 10000, .dim = 64, .scaling = YarnScaling{.factor = 40}};
  const std::vector<float> speeds = rope_frequencies(rope);
  ASSERT_EQ(speeds.size(), 32u);
  for (size_t i = 0; i < speeds.size(); ++i) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 32);
    const double ramp = std::clamp((static_cast<double>(i) - 10) / 13, 0.0, 1.0);
    const double want = plain * (1 - ramp) + plain / 40 * ramp;
    EXPECT_NEAR(speeds[i], want, want * 16 * 0x1p-24) << i;
  }
  EXPECT_EQ(rope_gain(rope), 1);
  std::get<YarnScaling>(rope.scaling).attention_factor = 1.25f;
  EXPECT_EQ(rope_gain(rope), 1.25f);
  EXPECT_EQ(rope_gain({.dim = 64, .scaling = LinearScaling{4}}), 1);
}

// With few dimensions both bounds may fall on one pair, which is a step.
TEST(Rope, YarnsRampMayBeAStep) {
  const Rope rope{.theta = 10000,
                  .dim = 8,
                  .scaling = YarnScaling{.factor = 8, .beta_fast = 1, .original_ctx = 6}};
  const Rope plain{.theta = 10000, .dim = 8};
  const std::vector<float> was = rope_frequencies(plain), is = rope_frequencies(rope);
  EXPECT_EQ(is[0], was[0]);
  for (size_t i = 1; i < 4; ++i) EXPECT_FLOAT_EQ(is[i], was[i] / 8) << i;
}

}  // namespace
}  // namespace skiff
