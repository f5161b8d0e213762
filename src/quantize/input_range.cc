#include "quantize/input_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quantize/fold.h"
#include "quantize/moments.h"
#include "quantize/parallel.h"
#include "quantize/round_input.h"

namespace skiff::quantize {
namespace {

constexpr int64_t kRows = 4096;  // on which ranges are tried
constexpr int kTries = 25, kTriesByHalf = 4;

// The sum of squares of each column over all weights.
std::vector<double> column_squares(const std::vector<const Matrix*>& weights) {
  std::vector<double> squares(static_cast<size_t>(weights.at(0)->cols));
  for (const Matrix* w : weights)
    for (int64_t r = 0; r < w->rows; ++r)
      for (int64_t c = 0; c < w->cols; ++c)
        squares[static_cast<size_t>(c)] += std::pow(static_cast<double>(w->row(r)[c]), 2);
  return squares;
}

double error_with(const Matrix& x, float range, const std::vector<double>& squares, int threads) {
  std::vector<double> errors(static_cast<size_t>(x.rows));
  parallel_for(threads, x.rows, [&](int64_t r) {
    std::vector<float> rounded(x.row(r), x.row(r) + x.cols);
    round_input(
        rounded.data(), 1, x.cols,
        {.format = {.dtype = DType::kI8, .scales = InputFormat::kStatic}, .largest = range});
    for (int64_t c = 0; c < x.cols; ++c) {
      const double lost = static_cast<double>(rounded[static_cast<size_t>(c)] - x.row(r)[c]);
      errors[static_cast<size_t>(r)] += lost * lost * squares[static_cast<size_t>(c)];
    }
  });
  return sum_of(errors);
}

}  // namespace

float largest_magnitude(const Matrix& x) {
  float largest = 0;
  for (const float v : x.values) largest = std::max(largest, std::abs(v));
  return largest;
}

float input_range(const Matrix& inputs, const std::vector<const Matrix*>& weights, int threads) {
  const float largest = largest_magnitude(inputs);
  if (largest == 0) return 0;
  const Matrix x = sample_rows(inputs, kRows);
  const std::vector<double> squares = column_squares(weights);
  float best = largest;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    const float range = largest * std::exp2(-static_cast<float>(i) / kTriesByHalf);
    const double error = error_with(x, range, squares, threads);
    if (error >= least) continue;
    least = error;
    best = range;
  }
  return best;
}

}  // namespace skiff::quantize
