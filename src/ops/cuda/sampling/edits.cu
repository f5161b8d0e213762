#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/kernels.h"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256, kPiece = 1024;  // edits of a row that are looked at together

// One block for each row. Edits of one token happen in their order: the first of a piece does all
// of them.
__global__ void edit_kernel(LogitArgs logits, EditArgs edits) {
  __shared__ int32_t token[kPiece];
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  float* x = logits.data + r * logits.stride;
  const int end = edits.row_start[r + 1];
  for (int begin = edits.row_start[r]; begin < end; begin += kPiece) {
    const int n = min(kPiece, end - begin);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
      token[i] = edits.token[begin + i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
      bool first = true;
      for (int j = 0; j < i && first; ++j) first = token[j] != token[i];
      if (!first) continue;
      float v = x[token[i]];
      for (int j = i; j < n; ++j) {
        if (token[j] != token[i]) continue;
        const float divide = edits.divide[begin + j];
        v = __fadd_rn(v > 0 ? v / divide : v * divide, edits.add[begin + j]);
      }
      x[token[i]] = v;
    }
  }
}

}  // namespace

void start_edits(const LogitArgs& logits, const EditArgs& edits, cudaStream_t stream) {
  launch(
      edit_kernel,
      {.grid = dim3(static_cast<unsigned>(logits.rows)), .block = dim3(kThreads), .stream = stream},
      logits, edits);
}

}  // namespace skiff::cuda
