// None of these kernels lets the next one start early: later kernels read plans, and the batch,
// before they wait for the kernels before them.
#include "ops/cuda/drafts/drafts.h"
#include "ops/cuda/starts.cuh"

namespace skiff::cuda {
namespace {

constexpr int kMaxPlans = 16;  // in one launch
constexpr int kThreads = 256;

struct Rows {
  const int32_t *slots, *refused, *row_start;
  int32_t *positions, *kv_len;
  int seqs;
};

struct Plans {
  MovedPlan plan[kMaxPlans];
  int count;
};

__device__ int moved_by(const Rows& rows, int seq) {
  const int slot = rows.slots[seq];
  return slot < 0 ? 0 : rows.refused[slot];
}

__device__ void move_rows(const Rows& rows, int seq) {
  const int by = moved_by(rows, seq);
  if (by == 0) return;
  rows.kv_len[seq] -= by;
  for (int r = rows.row_start[seq]; r < rows.row_start[seq + 1]; ++r) rows.positions[r] -= by;
}

__device__ void move_item(const Rows& rows, const MovedPlan& plan, int index) {
  int32_t* item = plan.items + static_cast<int64_t>(index) * plan.words;
  const int by = moved_by(rows, *item);
  if (by == 0) return;
  item[plan.kv_len] -= by;
  if (plan.stored >= 0) item[plan.stored] -= by;
}

// A thread for each sequence, and then one for each item of the plans.
__global__ void __launch_bounds__(kThreads)
    move_back_kernel(const __grid_constant__ Rows rows, const __grid_constant__ Plans plans) {
  wait_for_previous();
  int index = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (index < rows.seqs) move_rows(rows, index);
  index -= rows.seqs;
  for (int p = 0; index >= 0 && p < plans.count; index -= plans.plan[p++].count)
    if (index < plans.plan[p].count) {
      move_item(rows, plans.plan[p], index);
      break;
    }
  __threadfence();
}

void start(const Rows& rows, std::span<const MovedPlan> some, Starts& starts) {
  Plans plans{};
  int threads = rows.seqs;
  for (const MovedPlan& plan : some) {
    if (plan.count == 0) continue;
    plans.plan[plans.count++] = plan;
    threads += plan.count;
  }
  if (threads == 0) return;
  const int blocks = (threads + kThreads - 1) / kThreads;
  starts.start(move_back_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), rows, plans);
}

__global__ void __launch_bounds__(kThreads)
    take_back_kernel(int64_t* values, const int32_t* slots, const int32_t* amounts, int n) {
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < n && slots[i] >= 0) values[i] -= amounts[slots[i]];
}

}  // namespace

void move_back(const RaggedBatch& batch, std::span<const MovedPlan> plans, Starts& starts) {
  const MovedBack& back = batch.moved_back;
  if (back.slots.rows() == 0) return;
  SKIFF_CHECK_EQ(back.slots.rows(), static_cast<int64_t>(batch.num_seqs));
  Rows rows = {.slots = back.slots.as<int32_t>(),
               .refused = back.refused.as<int32_t>(),
               .row_start = batch.row_start.as<int32_t>(),
               .positions = batch.positions.as<int32_t>(),
               .kv_len = batch.kv_len.as<int32_t>(),
               .seqs = batch.num_seqs};
  for (size_t first = 0; rows.seqs > 0 || first < plans.size(); first += kMaxPlans) {
    start(rows, plans.subspan(first, std::min<size_t>(kMaxPlans, plans.size() - first)), starts);
    rows.seqs = 0;  // they move once
    if (first + kMaxPlans >= plans.size()) break;
  }
}

void take_back(Tensor values, Tensor slots, Tensor amounts, cudaStream_t stream) {
  SKIFF_CHECK_EQ(values.rows(), slots.rows());
  const auto n = static_cast<int>(values.rows());
  if (n == 0) return;
  launch(take_back_kernel,
         {.grid = dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)),
          .block = dim3(kThreads),
          .stream = stream},
         values.as<int64_t>(), slots.as<int32_t>(), amounts.as<int32_t>(), n);
}

}  // namespace skiff::cuda
