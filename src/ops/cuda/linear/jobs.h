// ops/cuda/linear/jobs.h -- the problems of a grouped GEMM, as kernels see them: which rows meet
// which of the stacked weights.
#pragma once
#include <cstdint>

namespace skiff::cuda {

// Rows [first, first + rows) of the copies sorted by expert.
struct alignas(16) Job {
  int32_t expert, first, rows, unused;
};

// Made on the device. `capacity` bounds *count whatever the routing, so that launches can be
// sized without it.
struct JobList {
  const Job* jobs = nullptr;
  const int32_t* count = nullptr;
  int capacity = 0;
  // Instead of the list, for the copies of one token: copy i goes to expert[i], alone, and there
  // are `capacity` of them.
  const int32_t* expert = nullptr;
};

}  // namespace skiff::cuda
