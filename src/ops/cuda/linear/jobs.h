// ops/cuda/linear/jobs.h -- the problems of a grouped GEMM, as kernels see them: which rows meet
// which of the stacked weights.
#pragma once
#include <cstdint>

namespace skiff::cuda {

// Rows [first, first + rows), which all meet one expert: rows are copies sorted by expert.
struct alignas(16) Job {
  int32_t expert, first, rows, unused;
};

// Lists are made on the device. `capacity` bounds *count whatever the routing, so that launches do
// not depend on it.
struct JobList {
  const Job* jobs = nullptr;
  const int32_t* count = nullptr;
  int capacity = 0;
  // Takes the place of the list for the `capacity` copies of one token: copy i is a job of its own,
  // for expert[i].
  const int32_t* expert = nullptr;
};

}  // namespace skiff::cuda
