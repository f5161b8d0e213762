// ops/cuda/linear/jobs.h -- the problems of a grouped GEMM, as kernels see them: which rows meet
// which of the stacked weights.
#pragma once
#include <cstdint>

namespace skiff::cuda {

// Rows [first, first + rows), which all meet one expert: rows are copies sorted by expert.
struct alignas(16) Job {
  int32_t expert, first, rows, unused;
};

// The best number of rows of a job when `copies` rows are routed to `experts` whose weights are not
// quantized; the same for packed weights with elements of so many bits (`fast`:
// quant/atom_args.cuh, are_fast()); and of a dense GEMM.
int job_rows(int64_t copies, int experts);
int packed_job_rows(int64_t copies, int experts, int element_bits, bool fast);
int dense_job_rows(int64_t rows);

// Lists are made on the device. `capacity` bounds *count whatever the routing, so that launches do
// not depend on it.
struct JobList {
  const Job* jobs = nullptr;
  const int32_t* count = nullptr;
  int capacity = 0;
  // Takes the place of the list for the `capacity` copies of one token: copy i is a job of its own,
  // for expert[i].
  const int32_t* expert = nullptr;
  // With `expert`: the last `known` copies are those of the last experts of all `experts`, in
  // order. So their weights can be loaded before the list has been written.
  int known = 0, experts = 0;
};

}  // namespace skiff::cuda
