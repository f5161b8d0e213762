// GPTQ against an oracle in double precision that follows the paper word for word, and against
// rounding to nearest.
#include "quantize/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "quantize/cholesky.h"

namespace skiff::quantize {
namespace {

constexpr WeightFormat kFour{.dtype = DType::kI4,
                             .block_out = 1,
                             .block_in = 16,
                             .scale = DType::kF16,
                             .zero = {},
                             .input = {}};
constexpr WeightFormat kFourWithZeros{.dtype = DType::kU4,
                                      .block_out = 1,
                                      .block_in = 16,
                                      .scale = DType::kF16,
                                      .zero = DType::kU8,
                                      .input = {}};

Matrix random_matrix(int64_t rows, int64_t cols, uint64_t seed) {
  Matrix m(rows, cols);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : m.values) x = normal(random);
  return m;
}

// Inputs that depend on each other, of sizes that differ.
Matrix correlated_inputs(int64_t tokens, int64_t in, uint64_t seed) {
  const Matrix free = random_matrix(tokens, in, seed), mix = random_matrix(in, in, seed + 1);
  Matrix x(tokens, in);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < in; ++c) {
      float sum = free.row(t)[c];
      for (int64_t k = 0; k < in; ++k) sum += 0.3f * free.row(t)[k] * mix.row(k)[c];
      x.row(t)[c] = sum * (1 + static_cast<float>(c % 7));
    }
  return x;
}

Square moments_of(const Matrix& x) {
  Square m(x.cols);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t i = 0; i < x.cols; ++i)
      for (int64_t j = 0; j < x.cols; ++j)
        m.row(i)[j] += static_cast<double>(x.row(t)[i]) * x.row(t)[j] / static_cast<double>(x.rows);
  return m;
}

// The inverse of a positive definite matrix by Gauss and Jordan.
std::vector<std::vector<double>> inverse(std::vector<std::vector<double>> a) {
  const size_t n = a.size();
  std::vector<std::vector<double>> b(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) b[i][i] = 1;
  for (size_t i = 0; i < n; ++i) {
    const double pivot = a[i][i];
    for (size_t k = 0; k < n; ++k) a[i][k] /= pivot, b[i][k] /= pivot;
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double f = a[r][i];
      for (size_t k = 0; k < n; ++k) a[r][k] -= f * a[i][k], b[r][k] -= f * b[i][k];
    }
  }
  return b;
}

// OBQ's rule (arXiv 2210.17323, equation 2) in GPTQ's order of columns: after each column the
// inverse is taken anew for those that are left.
std::vector<uint8_t> oracle(const Matrix& w, int64_t row, const WeightFormat& format,
                            const std::vector<Step>& steps, const Square& moments, double damping,
                            const std::vector<int64_t>& order) {
  const int64_t n = w.cols;
  const Rounded shape = empty_rounded(format, w.rows, n);
  std::vector<double> left(w.row(row), w.row(row) + n);
  std::vector<uint8_t> codes(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    std::vector<std::vector<double>> h;
    for (int64_t r = i; r < n; ++r) {
      std::vector<double>& line = h.emplace_back();
      for (int64_t c = i; c < n; ++c)
        line.push_back(moments.row(order[static_cast<size_t>(r)])[order[static_cast<size_t>(c)]] +
                       (r == c ? damping : 0));
    }
    const auto inv = inverse(h);
    const int64_t column = order[static_cast<size_t>(i)];
    const Step& step = steps[shape.block_index(row, column)];
    const auto at = static_cast<size_t>(column);
    codes[at] = code_of(format, step, static_cast<float>(left[at]));
    const double error = (left[at] - value_of(format, step, codes[at])) / inv[0][0];
    for (int64_t k = i; k < n; ++k)
      left[static_cast<size_t>(order[static_cast<size_t>(k)])] -=
          error * inv[static_cast<size_t>(k - i)][0];
  }
  return codes;
}

Matrix difference(const Rounded& rounded, const Matrix& w) {
  Matrix d = values_of(rounded);
  for (size_t i = 0; i < d.values.size(); ++i) d.values[i] -= w.values[i];
  return d;
}

struct Case {
  const char* name;
  WeightFormat format;
  bool act_order;
};

class Gptq : public ::testing::TestWithParam<Case> {};

// A rounding decision may differ only where float32 puts a value on the other side of a tie, so
// nearly all elements agree.
TEST_P(Gptq, EqualsThePaperInDoublePrecision) {
  constexpr int64_t kOut = 6, kIn = 48;
  const Matrix w = random_matrix(kOut, kIn, 1);
  const Square m = moments_of(correlated_inputs(200, kIn, 2));
  const auto steps = covering_steps(w, GetParam().format);
  const GptqResult result =
      gptq(w, GetParam().format, steps, m,
           {.damping = 0.01, .act_order = GetParam().act_order, .refinements = 0}, 1);
  double mean = 0;
  for (int64_t i = 0; i < kIn; ++i) mean += m.row(i)[i] / kIn;
  std::vector<int64_t> order(kIn);
  std::iota(order.begin(), order.end(), 0);
  if (GetParam().act_order)
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return m.row(a)[a] > m.row(b)[b]; });
  int64_t same = 0, rows = 0;
  const Rounded nearest = round_with(w, GetParam().format, steps, 1);
  for (int64_t r = 0; r < kOut; ++r) {
    const auto begin = result.rounded.codes.begin() + r * kIn;
    if (std::equal(begin, begin + kIn, nearest.codes.begin() + r * kIn)) continue;  // kept nearest
    ++rows;
    const auto want = oracle(w, r, GetParam().format, steps, m, 0.01 * mean, order);
    for (int64_t c = 0; c < kIn; ++c) same += want[static_cast<size_t>(c)] == begin[c] ? 1 : 0;
  }
  EXPECT_GE(rows, kOut - 1);
  EXPECT_GE(same, rows * kIn - 2);
}

TEST_P(Gptq, NoOutputIsWorseThanRoundedToNearest) {
  for (const int64_t tokens : {5, 40, 400}) {  // fewer tokens than inputs: of low rank
    const Matrix w = random_matrix(24, 64, 3), x = correlated_inputs(tokens, 64, 4);
    const Square m = moments_of(x);
    const auto steps = covering_steps(w, GetParam().format);
    const GptqResult result =
        gptq(w, GetParam().format, steps, m, {.act_order = GetParam().act_order}, 2);
    ASSERT_TRUE(result.factored);
    const auto mine = output_errors(difference(result.rounded, w), m, 1);
    const auto nearest =
        output_errors(difference(round_with(w, GetParam().format, steps, 1), w), m, 1);
    for (size_t r = 0; r < mine.size(); ++r) EXPECT_LE(mine[r], nearest[r] * (1 + 1e-9)) << r;
    EXPECT_LT(sum_of(mine), 0.7 * sum_of(nearest)) << tokens << " tokens";
  }
}

TEST_P(Gptq, ThreadsDoNotMatter) {
  const Matrix w = random_matrix(40, 32, 5);
  const Square m = moments_of(correlated_inputs(100, 32, 6));
  const auto steps = calibrated_steps(w, GetParam().format, m, 1);
  EXPECT_EQ(gptq(w, GetParam().format, steps, m, {}, 1).rounded.codes,
            gptq(w, GetParam().format, steps, m, {}, 5).rounded.codes);
}

INSTANTIATE_TEST_SUITE_P(All, Gptq,
                         ::testing::Values(Case{"symmetric", kFour, true},
                                           Case{"in_order", kFour, false},
                                           Case{"zeros", kFourWithZeros, true}),
                         [](const auto& info) { return info.param.name; });

// An input that is always zero, one that doubles another, and none at all.
TEST(GptqMoments, OfLowRankAreDampedUntilTheyFactor) {
  Matrix x = correlated_inputs(30, 32, 7);
  for (int64_t t = 0; t < x.rows; ++t) x.row(t)[3] = 0, x.row(t)[9] = 2 * x.row(t)[8];
  const Matrix w = random_matrix(8, 32, 8);
  const auto steps = covering_steps(w, kFour);
  EXPECT_TRUE(gptq(w, kFour, steps, moments_of(x), {}, 1).factored);
  const GptqResult none = gptq(w, kFour, steps, Square(32), {}, 1);
  EXPECT_EQ(none.rounded.codes, round_with(w, kFour, steps, 1).codes);
}

TEST(GptqMoments, ThatAreNoMomentsGiveRoundingToNearest) {
  Square m(32);
  for (int64_t i = 0; i < 32; ++i) m.row(i)[i] = i == 5 ? -1e6 : 1;
  const Matrix w = random_matrix(8, 32, 9);
  const auto steps = covering_steps(w, kFour);
  const GptqResult result = gptq(w, kFour, steps, m, {}, 1);
  EXPECT_FALSE(result.factored);
  EXPECT_EQ(result.rounded.codes, round_with(w, kFour, steps, 1).codes);
}

TEST(InverseFactor, MultipliedGivesTheInverse) {
  constexpr int64_t kSize = 75;  // not a multiple of a panel
  const Square m = moments_of(correlated_inputs(300, kSize, 10));
  const auto u = inverse_factor(m, 0.5, 3);
  ASSERT_TRUE(u);
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t j = 0; j < kSize; ++j) {
      if (i > j) {
        EXPECT_EQ(u->row(i)[j], 0);
      }
      double sum = 0;  // an element of (m + 0.5) * U^T U
      for (int64_t k = 0; k < kSize; ++k) {
        double inv = 0;
        for (int64_t l = 0; l < kSize; ++l) inv += u->row(l)[k] * u->row(l)[j];
        sum += (m.row(i)[k] + (i == k ? 0.5 : 0)) * inv;
      }
      // Condition numbers here are below 1e6, so 1e-16 * 1e6 * 75 is far below this.
      EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-7);
    }
}

TEST(CalibratedSteps, AreNeverWorseThanCoveringOnesForTheirBlock) {
  const Matrix w = random_matrix(16, 16, 11);  // one block in a row: its error is the output's
  const Square m = moments_of(correlated_inputs(100, 16, 12));
  const auto error = [&](std::vector<Step> steps) {
    return output_errors(difference(round_with(w, kFour, std::move(steps), 1), w), m, 1);
  };
  const auto clipped = error(calibrated_steps(w, kFour, m, 1));
  const auto covering = error(covering_steps(w, kFour));
  for (size_t r = 0; r < clipped.size(); ++r)
    EXPECT_LE(clipped[r], covering[r] * (1 + 1e-4));  // searched in float32
  EXPECT_LT(sum_of(clipped), sum_of(covering));
}

}  // namespace
}  // namespace skiff::quantize
