#include "quantize/moments.h"

#include <algorithm>

#include "quantize/parallel.h"

namespace skiff::quantize {
namespace {

constexpr int64_t kChunk = 512;  // tokens whose products are summed in float32

}  // namespace

Matrix product(const Matrix& x, const Matrix& w, Ops& ops) {
  SKIFF_CHECK_EQ(x.cols, w.cols);
  Matrix out(x.rows, w.rows);
  Buffer owner;
  const Linear prepared = ops.prepare({.weight = w.tensor()}, {.dtype = DType::kF32}, &owner);
  ops.linear(out.tensor(), x.tensor(), prepared);
  ops.wait(ops.mark());
  return out;
}

Square second_moments(const Matrix& x, Ops& ops, int threads) {
  Square sum(x.cols);
  for (int64_t first = 0; first < x.rows; first += kChunk) {
    const int64_t count = std::min(kChunk, x.rows - first);
    Matrix turned(x.cols, count);
    for (int64_t t = 0; t < count; ++t)
      for (int64_t c = 0; c < x.cols; ++c) turned.row(c)[t] = x.row(first + t)[c];
    const Matrix part = product(turned, turned, ops);
    parallel_for(threads, x.cols, [&](int64_t r) {
      for (int64_t c = 0; c < x.cols; ++c) sum.row(r)[c] += part.row(r)[c];
    });
  }
  for (double& value : sum.values) value /= static_cast<double>(std::max<int64_t>(1, x.rows));
  return sum;
}

std::vector<double> output_errors(const Matrix& difference, const Square& moments, int threads) {
  SKIFF_CHECK_EQ(difference.cols, moments.size);
  std::vector<double> errors(static_cast<size_t>(difference.rows));
  parallel_for(threads, difference.rows, [&](int64_t r) {
    const float* d = difference.row(r);
    std::vector<double> product(static_cast<size_t>(moments.size));  // d * moments
    for (int64_t i = 0; i < moments.size; ++i) {
      if (d[i] == 0) continue;
      const double* m = moments.row(i);
      for (int64_t j = 0; j < moments.size; ++j)
        product[static_cast<size_t>(j)] += m[j] * static_cast<double>(d[i]);
    }
    double total = 0;
    for (int64_t j = 0; j < moments.size; ++j)
      total += product[static_cast<size_t>(j)] * static_cast<double>(d[j]);
    errors[static_cast<size_t>(r)] = total;
  });
  return errors;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace skiff::quantize
