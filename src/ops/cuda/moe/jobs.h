// ops/cuda/moe/jobs.h -- which rows meet which expert, as kernels see it.
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
};

}  // namespace skiff::cuda
