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

// Elements are converted once for each job, however few rows it has, and a job's rows cost as much
// as if all of them were there. So more rows than the mean pay only as far as they keep experts
// from being cut. Measured on an H200 from 12 to 96 rows an expert, in steps of a model of 64.
int packed_job_rows(int64_t copies, int experts, int element_bits, bool fast) {
  constexpr int kMostPacked = 128;
  const int64_t mean = copies / experts;
  if (mean <= 8) return smallest(2 * mean);
  if (mean <= 14 && element_bits == 4) return 16;
  if (mean <= 18 && element_bits == 4) return 24;
  if (mean <= (fast ? 25 : 22)) return 32;
  return mean <= 64 ? 64 : kMostPacked;
}

int dense_job_rows(int64_t rows) { return smallest(rows); }

}  // namespace skiff::cuda
