#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/kernels.h"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;

// There is one block for each slot; its threads look through the list together. The thread that
// finds the token counts it; if none does, the first one appends it.
__global__ void count_kernel(SeenArgs seen, CountArgs counts) {
  let_next_start();
  wait_for_previous();
  const auto b = static_cast<int>(blockIdx.x);
  const int token = counts.token[counts.row[b]];
  int2* list = seen.lists + counts.slot[b] * seen.stride;
  const int n = list[0].x;
  bool found = false;
  for (int i = 1 + static_cast<int>(threadIdx.x); i <= n; i += kThreads) {
    const int2 entry = list[i];
    if (entry.x != token) continue;
    list[i].y = entry.y + 1;
    found = true;
  }
  if (__syncthreads_or(found) || threadIdx.x > 0 || n + 1 >= seen.stride) return;
  list[1 + n] = make_int2(token, 1);
  list[0].x = n + 1;
}

// A row is the work of several blocks, which do not conflict: a list names no token twice. No
// multiplication is fused with an addition, so that the bits are those of the host.
__global__ void penalty_kernel(LogitArgs logits, SeenArgs seen, PenaltyArgs penalties) {
  let_next_start();
  wait_for_previous();
  const auto r = static_cast<int>(blockIdx.y);
  const float divide = penalties.divide[r], once = penalties.once[r], each = penalties.each[r];
  float* x = logits.data + penalties.row[r] * logits.stride;
  const int2* list = seen.lists + penalties.slot[r] * seen.stride;
  const int n = list[0].x, step = static_cast<int>(gridDim.x) * kThreads;
  for (int i = 1 + static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i <= n; i += step) {
    const int2 entry = list[i];
    const float v = x[entry.x], scaled = v > 0 ? __fdiv_rn(v, divide) : __fmul_rn(v, divide);
    const float amount = __fadd_rn(once, __fmul_rn(each, static_cast<float>(entry.y)));
    x[entry.x] = entry.y > 0 ? __fsub_rn(scaled, amount) : scaled;
  }
}

}  // namespace

void start_counts(const SeenArgs& seen, const CountArgs& counts, cudaStream_t stream) {
  launch(count_kernel,
         {.grid = dim3(static_cast<unsigned>(counts.count)),
          .block = dim3(kThreads),
          .stream = stream},
         seen, counts);
}

// Some thousand threads hide the latency of memory; few rows get more blocks each.
void start_penalties(const LogitArgs& logits, const SeenArgs& seen, const PenaltyArgs& penalties,
                     cudaStream_t stream) {
  constexpr int kBlocks = 1024, kMost = 64, kLeast = 4;
  const int blocks = std::clamp(kBlocks / penalties.rows, kLeast, kMost);
  launch(penalty_kernel,
         {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(penalties.rows)),
          .block = dim3(kThreads),
          .stream = stream},
         logits, seen, penalties);
}

}  // namespace skiff::cuda
