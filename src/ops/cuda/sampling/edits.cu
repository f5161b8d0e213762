#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/kernels.h"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTokensPerBlock = 16 * kThreads;  // tokens of a masked row that a block looks at

__global__ void store_kernel(PageArgs pages, ChangeArgs changes) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= changes.count) return;
  const int at = changes.at[i];
  pages.token[at] = changes.token[i];
  pages.add[at] = changes.add[i];
}

// There is one block for each piece. Threads do not conflict: the pieces of a row name no token
// twice.
__global__ void edit_kernel(LogitArgs logits, PageArgs pages, EditArgs edits) {
  let_next_start();
  wait_for_previous();
  const auto p = static_cast<int>(blockIdx.x);
  float* x = logits.data + edits.row[p] * logits.stride;
  const int64_t page = int64_t{edits.page[p]} * pages.size;
  const int count = edits.count[p], first = edits.first[p];
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int token = first >= 0 ? first + i : pages.token[page + i];
    x[token] += pages.add[page + i];
  }
}

// blockIdx.y is a row of the mask, and blockIdx.x a run of its tokens. The words of the mask lie in
// host memory, so each block fetches its own with whole lines, once; the host wrote them before the
// launch, so they are fetched while the previous kernel still runs.
__global__ void mask_kernel(LogitArgs logits, MaskArgs masks) {
  __shared__ uint32_t words[kTokensPerBlock / 32];
  static_assert(kTokensPerBlock / 32 <= kThreads);
  let_next_start();
  const int first = static_cast<int>(blockIdx.x) * kTokensPerBlock;
  const int end = min(first + kTokensPerBlock, logits.vocab);
  const auto thread = static_cast<int>(threadIdx.x);
  if (first + 32 * thread < end)
    words[thread] =
        static_cast<uint32_t>(masks.allowed[blockIdx.y * masks.stride + first / 32 + thread]);
  float* x = logits.data + masks.row[blockIdx.y] * logits.stride;
  __syncthreads();
  wait_for_previous();
  for (int t = first + thread; t < end; t += kThreads)
    if ((words[(t - first) / 32] >> (t % 32) & 1) == 0) x[t] = -INFINITY;
}

}  // namespace

void start_changes(const PageArgs& pages, const ChangeArgs& changes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((changes.count + kThreads - 1) / kThreads);
  launch(store_kernel, {.grid = dim3(blocks), .block = dim3(kThreads), .stream = stream}, pages,
         changes);
}

void start_masks(const LogitArgs& logits, const MaskArgs& masks, cudaStream_t stream) {
  const int columns = (logits.vocab + kTokensPerBlock - 1) / kTokensPerBlock;
  launch(mask_kernel,
         {.grid = dim3(static_cast<unsigned>(columns), static_cast<unsigned>(masks.count)),
          .block = dim3(kThreads),
          .stream = stream},
         logits, masks);
}

void start_edits(const LogitArgs& logits, const PageArgs& pages, const EditArgs& edits,
                 cudaStream_t stream) {
  launch(edit_kernel,
         {.grid = dim3(static_cast<unsigned>(edits.pieces)),
          .block = dim3(kThreads),
          .stream = stream},
         logits, pages, edits);
}

}  // namespace skiff::cuda
