// quantize/moments.h -- what calibration keeps of the inputs of a linear layer: their second
// moments, and how large the error of rounded weights is on them.
#pragma once
#include <vector>

#include "ops/ops.h"
#include "quantize/matrix.h"

namespace skiff::quantize {

// A square matrix in double precision: sums over many tokens, then factored.
struct Square {
  int64_t size = 0;
  std::vector<double> values;  // [size * size]

  explicit Square(int64_t n = 0) : size(n), values(static_cast<size_t>(n * n)) {}
  double* row(int64_t r) { return values.data() + r * size; }
  const double* row(int64_t r) const { return values.data() + r * size; }
};

// Returns x^T x / rows: the mean over tokens of the products of each two inputs.
Square second_moments(const Matrix& x, Ops& ops, int threads);

// For each row d of `difference` = w - rounded w: d * moments * d^T, which is the mean squared
// error of that output over the tokens behind the moments.
std::vector<double> output_errors(const Matrix& difference, const Square& moments, int threads);
double sum_of(const std::vector<double>& values);

// x * w^T in float32.
Matrix product(const Matrix& x, const Matrix& w, Ops& ops);

}  // namespace skiff::quantize
