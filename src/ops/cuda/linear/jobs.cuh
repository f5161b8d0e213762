// ops/cuda/linear/jobs.cuh -- what kernels read of a list of jobs.
#pragma once
#include "ops/cuda/linear/jobs.h"

namespace skiff::cuda {

// The expert of copy i, where jobs are the copies of one token (JobList::expert). A copy whose
// expert is on another rank is multiplied by the first one here; its result is not used.
__device__ __forceinline__ int expert_of_copy(const JobList& jobs, int i) {
  const int behind = jobs.capacity - i;
  return behind <= jobs.known ? jobs.experts - behind : max(0, jobs.expert[i]);
}

}  // namespace skiff::cuda
