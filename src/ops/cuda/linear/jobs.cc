#include "ops/cuda/linear/jobs.h"

namespace skiff::cuda {
namespace {

constexpr int kFewest = 8, kMost = 256;

int smallest(int64_t rows) {
  int n = kFewest;
  while (n < rows && n < kMost) n *= 2;
  return n;
}

}  // namespace

// Experts have different numbers of rows, so that a job holds twice the mean, and more where that
// costs nothing: jobs of 64 rows are as fast as shorter ones, and cut an expert that is always on
// into fewer.
int job_rows(int64_t copies, int experts) {
  const int64_t mean = copies / experts;
  if (mean <= 8) return smallest(2 * mean);
  return mean <= 24 ? 64 : kMost;
}

int dense_job_rows(int64_t rows) { return smallest(rows); }

}  // namespace skiff::cuda
