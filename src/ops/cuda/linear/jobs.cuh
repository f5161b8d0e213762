// ops/cuda/linear/jobs.cuh -- what kernels read of a list of jobs.
#pragma once
#include "ops/cuda/linear/jobs.h"

namespace skiff::cuda {

// The expert of copy i, where jobs are the copies of one token (JobList::expert); below 0: it is on
// another rank, and the copy's result is not used.
__device__ __forceinline__ int expert_or_none(const JobList& jobs, int i) {
  const int behind = jobs.capacity - i;
  return behind <= jobs.known ? jobs.experts - behind : jobs.expert[i];
}
// The same where each copy is multiplied, one whose expert is elsewhere by the first one here.
__device__ __forceinline__ int expert_of_copy(const JobList& jobs, int i) {
  return max(0, expert_or_none(jobs, i));
}

}  // namespace skiff::cuda
