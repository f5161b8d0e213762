#include "ops/cuda/moe/experts.h"

#include <algorithm>
#include <limits>

#include "ops/cuda/linear/tiled.h"
#include "ops/cuda/moe/permute.h"

namespace skiff::cuda {
namespace {

int copies_of(const Routing& r) { return static_cast<int>(r.expert.elements()); }

Permutation take_permutation(Arena& arena, const Routing& routing, int rows_per_job) {
  const int copies = copies_of(routing);
  const int experts = static_cast<int>(routing.expert_start.elements()) - 1;
  const int jobs = plan_jobs(copies, experts, rows_per_job);
  return {.gathered = {},
          .position = arena.take(DType::kI32, {copies}).as<int32_t>(),
          .jobs = static_cast<Job*>(arena.take(DType::kI32, {jobs, 4}).data),
          .job_count = arena.take(DType::kI32, {1}).as<int32_t>(),
          .rows_per_job = rows_per_job};
}

JobList jobs_of(const Permutation& p, const Routing& routing) {
  const int experts = static_cast<int>(routing.expert_start.elements()) - 1;
  return {p.jobs, p.job_count, plan_jobs(copies_of(routing), experts, p.rows_per_job)};
}

// Any dtype and shape.
void tiled_experts(Tensor out, Tensor x, const Routing& routing, Tensor gate_up, Tensor down,
                   Act act, Arena& arena, cudaStream_t stream) {
  const int copies = copies_of(routing);
  const int64_t width = down.dim[2];
  Permutation p = take_permutation(arena, routing, kTiledJobRows);
  p.gathered = arena.take(x.dtype, {copies, x.cols()});
  const JobList jobs = jobs_of(p, routing);
  const Tensor both = arena.take(DType::kF32, {copies, 2 * width});
  const Tensor middle = arena.take(x.dtype, {copies, width});
  const Tensor outer = arena.take(DType::kF32, {copies, x.cols()});
  permute(p, x, routing, stream);
  tiled_product(both, p.gathered, gate_up, jobs, stream);
  gate_copies(middle, both, act, stream);
  tiled_product(outer, middle, down, jobs, stream);
  combine(out, outer, p.position, routing, stream);
}

// bf16 on Hopper, one token: its copies need no order and no gathering, and share its row of x.
void one_token_experts(Tensor out, Tensor x, const Routing& routing, Tensor gate_up, Tensor down,
                       Act act, const StreamedProducts& streamed, Arena& arena,
                       cudaStream_t stream) {
  const int copies = copies_of(routing), rows_per_job = StreamedProducts::job_rows(1, 1);
  const JobList jobs = {.capacity = copies, .expert = routing.expert.as<int32_t>()};
  const Tensor outer = arena.take(DType::kF32, {copies, x.cols()});
  const Tensor middle = arena.take(x.dtype, {copies, down.dim[2]});
  streamed.grouped_gated(middle, x, gate_up, act, jobs, rows_per_job, stream);
  streamed.grouped(outer, middle, down, jobs, rows_per_job, stream);
  combine(out, outer, nullptr, routing, stream);
}

// bf16 on Hopper. The rows that were gathered are not needed once the second product begins, so
// its results take their place.
void streamed_experts(Tensor out, Tensor x, const Routing& routing, Tensor gate_up, Tensor down,
                      Act act, const StreamedProducts& streamed, Arena& arena,
                      cudaStream_t stream) {
  const int copies = copies_of(routing), experts = static_cast<int>(gate_up.dim[0]);
  const int rows_per_job = StreamedProducts::job_rows(copies, experts);
  const Tensor outer = arena.take(DType::kF32, {copies, x.cols()});
  const Tensor middle = arena.take(x.dtype, {copies, down.dim[2]});
  Permutation p = take_permutation(arena, routing, rows_per_job);
  p.gathered = outer;
  p.gathered.dtype = x.dtype;
  const JobList jobs = jobs_of(p, routing);
  permute(p, x, routing, stream);
  streamed.grouped_gated(middle, p.gathered, gate_up, act, jobs, rows_per_job, stream);
  streamed.grouped(outer, middle, down, jobs, rows_per_job, stream);
  combine(out, outer, p.position, routing, stream);
}

}  // namespace

size_t experts_bytes(DType act, int64_t tokens, const Router& router, int64_t hidden,
                     int64_t width) {
  const auto copies = static_cast<size_t>(tokens * router.per_token());
  const auto h = static_cast<size_t>(hidden), w = static_cast<size_t>(width);
  const auto planned = static_cast<int>(std::min<size_t>(copies, std::numeric_limits<int>::max()));
  const auto jobs = static_cast<size_t>(plan_jobs(planned, router.total(), 8));
  return copies * (h * bytes(act) + w * bytes(act) + 2 * w * 4 + h * 4 + 4) + jobs * sizeof(Job) +
         8 * kTensorAlign;
}

void experts(Tensor out, Tensor x, const Routing& routing, Tensor gate_up, Tensor down, Act act,
             const StreamedProducts& streamed, Arena& arena, cudaStream_t stream) {
  SKIFF_CHECK_EQ(gate_up.dim[1], 2 * down.dim[2]);
  SKIFF_CHECK_EQ(gate_up.dim[2], x.cols());
  SKIFF_CHECK_EQ(down.dim[1], x.cols());
  if (x.rows() == 0) return;
  const size_t mark = arena.mark();
  Tensor middle = x;  // what is asked of it: rows on 16 bytes
  middle.dim[1] = middle.row_stride = down.dim[2];
  if (!streamed.takes(x, gate_up, true) || !streamed.takes(middle, down, false))
    tiled_experts(out, x, routing, gate_up, down, act, arena, stream);
  else if (x.rows() == 1)
    one_token_experts(out, x, routing, gate_up, down, act, streamed, arena, stream);
  else
    streamed_experts(out, x, routing, gate_up, down, act, streamed, arena, stream);
  arena.rewind(mark);
}

}  // namespace skiff::cuda
