#include "ops/cuda/drafts/drafts.h"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 128;

struct Columns {
  const int32_t *slots, *drafts, *draws, *kept, *row_start, *tokens, *drawn, *moved_slots;
  int32_t *last, *refused, *moved, *next, *ends;
  int n, padded;  // sequences, and places in `ends`
};

// Settles sequence i, or fills its place in `ends` where there is none.
__device__ void settle(const Columns& c, int i) {
  if (i >= c.n || c.slots[i] < 0) {
    if (i < c.padded) c.ends[i] = 0;
    return;
  }
  const int row = c.row_start[i], drafts = c.drafts[i], forced = c.kept[i], slot = c.slots[i];
  const int32_t *tokens = c.tokens + row, *behind = c.drawn + c.draws[i];
  int kept = 0, last = 0;
  for (int j = 0; j <= drafts; ++j) {
    const int drawn = j == 0 ? c.drawn[i] : behind[j - 1];
    const int next = j < forced ? tokens[j + 1] : drawn;
    c.next[row + j] = next;
    if (kept < j) continue;  // the token behind a refused draft
    last = next;
    if (j < drafts && (forced < 0 ? next == tokens[j + 1] : j < forced)) ++kept;
  }
  const bool moved = c.moved_slots != nullptr && c.moved_slots[i] >= 0;
  c.moved[slot] = drafts - kept + (moved ? c.refused[slot] : 0);
  c.refused[slot] = drafts - kept;
  c.last[slot] = last;
  c.ends[i] = row + kept;
}

// A thread for each sequence. It does not let the next kernel start early: kernels behind it read
// the rows that it names before they wait.
__global__ void __launch_bounds__(kThreads)
    settle_drafts_kernel(const __grid_constant__ Columns c) {
  wait_for_previous();
  settle(c, static_cast<int>(blockIdx.x * kThreads + threadIdx.x));
  __threadfence();
}

}  // namespace

void settle_drafts(const DraftVerdicts& in, const DraftsSettled& out, cudaStream_t stream) {
  const auto n = static_cast<int>(in.slots.rows());
  if (n == 0) return;
  const Columns columns = {
      .slots = in.slots.as<int32_t>(),
      .drafts = in.drafts.as<int32_t>(),
      .draws = in.draws.as<int32_t>(),
      .kept = in.kept.as<int32_t>(),
      .row_start = in.row_start.as<int32_t>(),
      .tokens = in.tokens.as<int32_t>(),
      .drawn = in.drawn.as<int32_t>(),
      .moved_slots = in.moved_slots.rows() > 0 ? in.moved_slots.as<int32_t>() : nullptr,
      .last = out.last.as<int32_t>(),
      .refused = out.refused.as<int32_t>(),
      .moved = out.moved.as<int32_t>(),
      .next = out.next.as<int32_t>(),
      .ends = out.ends.as<int32_t>(),
      .n = n,
      .padded = static_cast<int>(out.ends.rows())};
  launch(settle_drafts_kernel,
         {.grid = dim3(static_cast<unsigned>((columns.padded + kThreads - 1) / kThreads)),
          .block = dim3(kThreads),
          .stream = stream},
         columns);
}

}  // namespace skiff::cuda
