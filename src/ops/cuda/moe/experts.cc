#include "ops/cuda/moe/experts.h"

#include <algorithm>
#include <limits>

#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/tiled.h"
#include "ops/cuda/moe/met_copies.h"
#include "ops/cuda/moe/permute.h"
#include "ops/cuda/moe/route.h"

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

// Where a layer's experts run.
struct Place {
  Arena& arena;
  cudaStream_t stream;
};

// A grouped GEMM of any dtype and shape.
void tiled_grouped(Tensor out, Tensor x, const Linear& w, const JobList& jobs,
                   const InputScratch& inputs, cudaStream_t stream) {
  if (changes_rows(w)) x = meet(inputs, Met::kFloats, x, w, jobs, stream).x;
  tiled_product(out, x, w, jobs, stream);
}

Combination combination_of(const Tensor& out, const Tensor& outer, const int32_t* position,
                           const Routing& routing) {
  return {.out = out,
          .outer = outer,
          .position = position,
          .expert = routing.expert,
          .weight = routing.weight};
}

// Takes any dtype and shape.
Combination tiled_experts(Tensor out, Tensor x, const Routing& routing, const ExpertWeights& w,
                          const InputScratch& inputs, const Place& on) {
  const int copies = copies_of(routing);
  Permutation p = take_permutation(on.arena, routing, kTiledJobRows);
  p.gathered = on.arena.take(x.dtype, {copies, x.cols()});
  const JobList jobs = jobs_of(p, routing);
  const Tensor both = on.arena.take(DType::kF32, {copies, 2 * w.width()});
  const Tensor middle = on.arena.take(x.dtype, {copies, w.width()});
  const Tensor outer = on.arena.take(x.dtype, {copies, x.cols()});
  permute(p, x, routing, on.stream);
  tiled_grouped(both, p.gathered, w.gate_up, jobs, inputs, on.stream);
  gate_copies(middle, both, w.act, on.stream);
  tiled_grouped(outer, middle, w.down, jobs, inputs, on.stream);
  return combination_of(out, outer, p.position, routing);
}

// Returns the routing of tokens [first, first + count) alone; `first` is a multiple of four.
Routing routing_of(const Routing& all, int64_t first, int64_t count, const Place& on) {
  const Routing part = {.expert = all.expert.row_range(first, count),
                        .weight = all.weight.row_range(first, count),
                        .order = on.arena.take(DType::kI32, {count * all.expert.cols()}),
                        .expert_start = on.arena.take(DType::kI32, {all.expert_start.elements()}),
                        .always = all.always,
                        .experts = all.experts};
  sort_copies(part, on.stream);
  return part;
}

// Returns how many tokens fit the scratch with their copies as the weights meet them: all, or a
// multiple of four.
int64_t tokens_at_once(int64_t tokens, int64_t per_token, const ExpertWeights& w,
                       const InputScratch& scratch) {
  int64_t most = tokens;
  for (const Linear* one : {&w.gate_up, &w.down}) {
    if (!changes_rows(*one)) continue;
    const int64_t copies = met_rows_that_fit(Met::kFloats, scratch.bytes, inputs(*one));
    most = std::min(most, copies / per_token);
  }
  return most == tokens ? tokens : std::max<int64_t>(4, most / 4 * 4);
}

// tiled_experts() of any number of tokens. Parts are about equal, so that one of them, with its
// routing, takes less from the arena than all tokens would.
Combination tiled_parts(Tensor out, Tensor x, const Routing& routing, const ExpertWeights& w,
                        const InputScratch& scratch, const Place& on) {
  const int64_t tokens = x.rows();
  const int64_t most = tokens_at_once(tokens, routing.expert.cols(), w, scratch);
  if (most == tokens) return tiled_experts(out, x, routing, w, scratch, on);
  const int64_t parts = (tokens + most - 1) / most;
  const int64_t each = ((tokens + parts - 1) / parts + 3) / 4 * 4;
  for (int64_t first = 0; first < tokens; first += each) {
    const int64_t count = std::min(each, tokens - first);
    const size_t mark = on.arena.mark();
    const Routing part = routing_of(routing, first, count, on);
    combine(
        tiled_experts(out.row_range(first, count), x.row_range(first, count), part, w, scratch, on),
        on.stream);
    on.arena.rewind(mark);
  }
  return {};
}

// bf16 on Hopper, one token: its copies share its row of x, and need neither sorting nor gathering.
Combination one_token_experts(Tensor out, Tensor x, const Routing& routing, const ExpertWeights& w,
                              const StreamedProducts& streamed, const Place& on) {
  const int copies = copies_of(routing);
  constexpr int kRows = 8;
  const JobList jobs = {.capacity = copies, .expert = routing.expert.as<int32_t>()};
  JobList gated_jobs = jobs;
  gated_jobs.known = routing.always;
  gated_jobs.experts = static_cast<int>(w.gate_up.experts);
  const Tensor outer = on.arena.take(x.dtype, {copies, x.cols()});
  const Tensor middle = on.arena.take(x.dtype, {copies, w.width()});
  streamed.grouped_gated(middle, x, w.gate_up, w.act, gated_jobs, kRows, on.stream);
  streamed.grouped(outer, middle, w.down, jobs, kRows, on.stream);
  return combination_of(out, outer, nullptr, routing);
}

// bf16 on Hopper. The gathered rows are not needed once the second GEMM begins, so its results take
// their place.
Combination streamed_experts(Tensor out, Tensor x, const Routing& routing, const ExpertWeights& w,
                             const StreamedProducts& streamed, const Place& on, bool sorted) {
  const int copies = copies_of(routing);
  // Copies of experts on other ranks count among all copies, so these count among all experts.
  const int all_experts = routing.experts + routing.always;
  SKIFF_CHECK(all_experts >= w.gate_up.experts, "a routing among {} experts for {}", all_experts,
              w.gate_up.experts);
  const int rows = std::min(StreamedProducts::rows_of_jobs(copies, all_experts, w.gate_up),
                            StreamedProducts::rows_of_jobs(copies, all_experts, w.down));
  const Tensor outer = on.arena.take(x.dtype, {copies, x.cols()});
  const Tensor middle = on.arena.take(x.dtype, {copies, w.width()});
  Permutation p = take_permutation(on.arena, routing, rows);
  p.gathered = outer;
  const JobList jobs = jobs_of(p, routing);
  std::optional<MetRows> rounded;  // what `middle` holds, if it is not bf16
  if (meets_before_copies(streamed.inputs(), x, w.gate_up, copies)) {
    if (!sorted) sort_copies(routing, on.stream);
    const MetRows met = meet_copies(streamed.inputs(), p, x, w.gate_up, routing, on.stream);
    rounded = streamed.grouped_gated_rounded(middle, met, w.gate_up, w.down, w.act, jobs, rows,
                                             on.stream);
    if (!rounded)
      streamed.grouped_gated(middle, met.x, w.gate_up, w.act, jobs, rows, on.stream, met);
  } else {
    permute(p, x, routing, on.stream, sorted);
    streamed.grouped_gated(middle, p.gathered, w.gate_up, w.act, jobs, rows, on.stream);
  }
  streamed.grouped(outer, rounded ? rounded->x : middle, w.down, jobs, rows, on.stream, rounded);
  return combination_of(out, outer, p.position, routing);
}

}  // namespace

size_t experts_bytes(DType act, int64_t tokens, const Router& router, int64_t hidden,
                     int64_t width) {
  const auto copies = static_cast<size_t>(tokens * router.per_token());
  const auto h = static_cast<size_t>(hidden), w = static_cast<size_t>(width);
  const auto planned = static_cast<int>(std::min<size_t>(copies, std::numeric_limits<int>::max()));
  const auto jobs = static_cast<size_t>(plan_jobs(planned, router.total(), 8));
  return copies * (2 * h * bytes(act) + w * bytes(act) + 2 * w * 4 + 4) + jobs * sizeof(Job) +
         8 * kTensorAlign;
}

Combination experts(Tensor out, Tensor x, const Routing& routing, const ExpertWeights& w,
                    const StreamedProducts& streamed, Arena& arena, cudaStream_t stream,
                    bool sorted) {
  SKIFF_CHECK(w.gate_up.experts > 0 && w.gate_up.experts == w.down.experts);
  SKIFF_CHECK_EQ(features(w.gate_up), 2 * inputs(w.down));
  SKIFF_CHECK_EQ(inputs(w.gate_up), x.cols());
  SKIFF_CHECK_EQ(features(w.down), x.cols());
  if (x.rows() == 0) return {};
  const Place on = {arena, stream};
  const size_t mark = arena.mark();
  Tensor middle = x;  // has the alignment of the rows between the GEMMs
  middle.dim[1] = middle.row_stride = w.width();
  const bool streams = streamed.takes(x, w.gate_up, true) && streamed.takes(middle, w.down, false);
  const bool one = streams && x.rows() == 1;
  if (!sorted && (one || !streams)) sort_copies(routing, stream);
  const Combination last = !streams ? tiled_parts(out, x, routing, w, streamed.inputs(), on)
                           : one    ? one_token_experts(out, x, routing, w, streamed, on)
                                    : streamed_experts(out, x, routing, w, streamed, on, sorted);
  arena.rewind(mark);
  return last;
}

}  // namespace skiff::cuda
