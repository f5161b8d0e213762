#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ops/ops.h"

namespace skiff {
namespace {

// n draws of a uniform have a mean of deviation sqrt(1/12n) and a second moment about 1/2 of
// deviation sqrt(1/180n); five deviations either way.
void expect_uniform(double sum, double squares, int n) {
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / n));
}

TEST(UniformDraw, MeanAndVarianceAlongDrawsAndAlongSeeds) {
  constexpr int kN = 200000;
  double sum[2] = {}, squares[2] = {};
  for (int i = 0; i < kN; ++i) {
    const double u[2] = {uniform_draw(7, static_cast<uint64_t>(i)),
                         uniform_draw(static_cast<uint64_t>(i), 3)};
    for (int k = 0; k < 2; ++k) {
      ASSERT_GE(u[k], 0);
      ASSERT_LT(u[k], 1);
      sum[k] += u[k];
      squares[k] += (u[k] - 0.5) * (u[k] - 0.5);
    }
  }
  for (int k = 0; k < 2; ++k) expect_uniform(sum[k], squares[k], kN);
}

TEST(UniformDraw, NeighboursAreUncorrelated) {
  constexpr int kN = 200000;
  double along_draws = 0, along_seeds = 0;
  for (uint64_t i = 0; i < kN; ++i) {
    const double u = uniform_draw(i, i) - 0.5;
    along_draws += u * (uniform_draw(i, i + 1) - 0.5);
    along_seeds += u * (uniform_draw(i + 1, i) - 0.5);
  }
  // A product of two independent centred uniforms has deviation 1/12.
  const double bound = 5.0 / 12 / std::sqrt(kN);
  EXPECT_NEAR(along_draws / kN, 0, bound);
  EXPECT_NEAR(along_seeds / kN, 0, bound);
}

TEST(UniformDraw, NoTwoAlikeAmongSmallSeedsAndDraws) {
  std::set<double> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t draw = 0; draw < 100; ++draw) seen.insert(uniform_draw(seed, draw));
  }
  EXPECT_EQ(seen.size(), 10000u);
}

}  // namespace
}  // namespace skiff
