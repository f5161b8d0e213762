#include "quantize/cholesky.h"

#include <algorithm>
#include <cmath>

#include "quantize/parallel.h"

namespace skiff::quantize {
namespace {

double dot(const double* a, const double* b, int64_t n) {
  double sum[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int64_t k = 0; k < 4; ++k) sum[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

constexpr int64_t kPanel = 32;  // columns between two meetings of the threads

// Replaces the lower triangle of `a` by L with L L^T = a. False where a pivot is not positive.
bool factor(Square& a, int threads) {
  for (int64_t first = 0; first < a.size; first += kPanel) {
    const int64_t end = std::min(first + kPanel, a.size);
    for (int64_t j = first; j < end; ++j) {
      const double pivot = a.row(j)[j] - dot(a.row(j), a.row(j), j);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      a.row(j)[j] = std::sqrt(pivot);
      for (int64_t i = j + 1; i < end; ++i)
        a.row(i)[j] = (a.row(i)[j] - dot(a.row(i), a.row(j), j)) / a.row(j)[j];
    }
    constexpr int64_t kRows = 16;
    parallel_for(threads, (a.size - end + kRows - 1) / kRows, [&](int64_t part) {
      for (int64_t i = end + part * kRows; i < std::min(end + (part + 1) * kRows, a.size); ++i)
        for (int64_t j = first; j < end; ++j)
          a.row(i)[j] = (a.row(i)[j] - dot(a.row(i), a.row(j), j)) / a.row(j)[j];
    });
  }
  return true;
}

}  // namespace

// With P the reversal of rows and columns, and P (m + d I) P = L L^T, the factor R = P L P is upper
// triangular and m + d I = R R^T; so its inverse is U^T U with U = R^-1 = P L^-1 P.
std::optional<Square> inverse_factor(const Square& m, double damping, int threads) {
  const int64_t n = m.size;
  Square lower(n);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < n; ++c) lower.row(r)[c] = m.row(n - 1 - r)[n - 1 - c];
  for (int64_t r = 0; r < n; ++r) lower.row(r)[r] += damping;
  if (!factor(lower, threads)) return std::nullopt;
  // Column c of L^-1 becomes row n-1-c of U; it is solved for as a row, so that reads are dense.
  Square upper(n);
  parallel_for(threads, n, [&](int64_t c) {
    std::vector<double> x(static_cast<size_t>(n));
    x[static_cast<size_t>(c)] = 1 / lower.row(c)[c];
    for (int64_t r = c + 1; r < n; ++r)
      x[static_cast<size_t>(r)] = -dot(lower.row(r) + c, x.data() + c, r - c) / lower.row(r)[r];
    // Element (r, c) of L^-1 is element (n-1-r, n-1-c) of U.
    for (int64_t r = c; r < n; ++r) upper.row(n - 1 - r)[n - 1 - c] = x[static_cast<size_t>(r)];
  });
  return upper;
}

}  // namespace skiff::quantize
