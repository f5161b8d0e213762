#include "quantize/input_range.h"

#include <gtest/gtest.h>

#include <random>

namespace skiff::quantize {
namespace {

Matrix random_matrix(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  Matrix m(rows, cols);
  for (float& x : m.values) x = normal(random);
  return m;
}

// Thousands of normal values: clipping at the largest or a little below loses least.
TEST(InputRange, CoversWhatHasNoOutliers) {
  const Matrix x = random_matrix(500, 16, 1), w = random_matrix(8, 16, 2);
  const float largest = largest_magnitude(x), range = input_range(x, {&w}, 2);
  EXPECT_LE(range, largest);
  EXPECT_GE(range, 0.7f * largest);
}

// One value of 1000 alone would give all others steps of 8.
TEST(InputRange, ClipsAnOutlierThatNobodyNeeds) {
  Matrix x = random_matrix(500, 16, 1), w = random_matrix(8, 16, 2);
  x.row(17)[3] = 1000;
  for (int64_t r = 0; r < w.rows; ++r) w.row(r)[3] = 0;
  EXPECT_EQ(largest_magnitude(x), 1000);
  EXPECT_LE(input_range(x, {&w}, 2), 20);
  for (int64_t r = 0; r < w.rows; ++r) w.row(r)[3] = 100;
  EXPECT_GE(input_range(x, {&w}, 2), 500);
}

TEST(InputRange, DoesNotDependOnThreads) {
  Matrix x = random_matrix(300, 33, 3);
  x.row(2)[5] = 50;
  const Matrix w = random_matrix(8, 33, 4), v = random_matrix(5, 33, 5);
  EXPECT_EQ(input_range(x, {&w, &v}, 1), input_range(x, {&w, &v}, 5));
  EXPECT_EQ(input_range(Matrix(0, 33), {&w}, 1), 0);
}

}  // namespace
}  // namespace skiff::quantize
