// ops/cuda/moe/permute.h -- the steps before and between the grouped GEMMs of a mixture of experts:
// rows are gathered by expert, and gated. Behind them they are combined (combination.h).
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/jobs.h"
#include "ops/ops.h"

namespace skiff::cuda {

// gathered[i] = x[order[i] / K] for every copy i of a live row; position[order[i]] = i; and the
// list of jobs of at most `rows_per_job` rows, by expert. `jobs` has room for plan_jobs() of them.
struct Permutation {
  Tensor gathered;    // [copies, hidden], dtype of x
  int32_t* position;  // [copies]
  Job* jobs;
  int32_t* job_count;
  int rows_per_job;
};
int plan_jobs(int copies, int experts, int rows_per_job);
// Where the routing is not `sorted`, sort_copies() is part of it: with few copies in one kernel.
void permute(const Permutation& to, Tensor x, const Routing& routing, cudaStream_t stream,
             bool sorted = true);

// middle[i] = act(gate_up[i, 0:width]) * gate_up[i, width:]; gate_up f32, middle f32 or bf16.
void gate_copies(Tensor middle, Tensor gate_up, Act act, cudaStream_t stream);

}  // namespace skiff::cuda
