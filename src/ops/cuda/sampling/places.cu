#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/block.cuh"
#include "ops/cuda/sampling/kernels.h"

namespace skiff::cuda {
namespace {

// The log of the sum of exp over a row, as in logprobs.cu.
__device__ double norm_of(const float* x, int vocab) {
  float best = kNever;
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kThreads) best = fmaxf(best, x[i]);
  best = reduce(best, [](float a, float b) { return fmaxf(a, b); });
  if (!isfinite(best)) return best;
  double weight = 0;
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kThreads)
    weight += static_cast<double>(expf(sane(x[i]) - best));
  return static_cast<double>(best) + log(sum(weight));
}

// Top tokens of any number: each token counts the better ones, which gives its rank. There is a
// thread for each token, with blocks along x and rows along y.
__global__ void __launch_bounds__(kThreads, 1) places_kernel(LogitArgs logits, LogprobArgs args) {
  __shared__ uint64_t others[kThreads];
  wait_for_previous();
  let_next_start();
  const int64_t r = blockIdx.y;
  const float* x = logits.data + r * logits.stride;
  const double norm = norm_of(x, logits.vocab);
  const int id = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const uint64_t mine = id < logits.vocab ? ranked(sane(x[id]), id) : 0;
  int place = 0;
  for (int begin = 0; begin < logits.vocab; begin += kThreads) {
    const int other = begin + static_cast<int>(threadIdx.x);
    __syncthreads();
    others[threadIdx.x] = other < logits.vocab ? ranked(sane(x[other]), other) : 0;
    __syncthreads();
    for (int i = 0; i < kThreads; ++i) place += others[i] > mine;
  }
  if (id >= logits.vocab || place >= args.top) return;
  args.top_ids[r * args.top + place] = id;
  args.top_logprobs[r * args.top + place] =
      static_cast<float>(static_cast<double>(sane(x[id])) - norm);
}

}  // namespace

void start_places(const LogitArgs& logits, const LogprobArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((logits.vocab + kThreads - 1) / kThreads);
  launch(places_kernel,
         {.grid = dim3(blocks, static_cast<unsigned>(logits.rows)),
          .block = dim3(kThreads),
          .stream = stream},
         logits, args);
}

}  // namespace skiff::cuda
