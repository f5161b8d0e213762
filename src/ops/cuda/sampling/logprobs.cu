#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/block.cuh"
#include "ops/cuda/sampling/kernels.h"

namespace skiff::cuda {
namespace {

constexpr int kFew = 32;  // best tokens that are found one after the other

// log(sum of exp) of a row, in double, as f32 arithmetic would lose what V additions make of it.
__device__ double norm_of(const float* x, int vocab, float best) {
  if (!isfinite(best)) return best;
  double weight = 0;
  each_logit(x, vocab, [&](int, float v) { weight += static_cast<double>(expf(v - best)); });
  return static_cast<double>(best) + log(sum(weight));
}

// One block for each row.
__global__ void __launch_bounds__(kThreads, 1) logprobs_kernel(LogitArgs logits, LogprobArgs args) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  const float* x = logits.data + r * logits.stride;
  uint64_t best = best_of(x, logits.vocab);
  const double norm = norm_of(x, logits.vocab, sane(x[id_of(best)]));
  const float mine = sane(x[args.chosen[r]]);
  uint32_t better = 0;
  each_logit(x, logits.vocab, [&](int, float v) { better += v > mine; });
  better = sum(better);
  if (threadIdx.x == 0) {
    args.chosen_logprob[r] = static_cast<float>(static_cast<double>(mine) - norm);
    args.chosen_rank[r] = static_cast<int32_t>(better) + 1;
  }
  if (args.top > kFew) return;
  for (int i = 0; i < args.top; ++i) {
    if (threadIdx.x == 0) {
      args.top_ids[r * args.top + i] = id_of(best);
      args.top_logprobs[r * args.top + i] =
          static_cast<float>(static_cast<double>(sane(x[id_of(best)])) - norm);
    }
    uint64_t next = 0;
    each_logit(x, logits.vocab, [&](int id, float v) {
      const uint64_t rank = ranked(v, id);
      if (rank < best) next = max(next, rank);
    });
    best = reduce(next, [](uint64_t a, uint64_t b) { return max(a, b); });
  }
}

// Many best tokens: each token counts those that are better and so knows its place. One thread for
// each token, blocks along x; rows along y.
__global__ void __launch_bounds__(kThreads, 1) places_kernel(LogitArgs logits, LogprobArgs args) {
  __shared__ uint64_t others[kThreads];
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.y;
  const float* x = logits.data + r * logits.stride;
  const double norm = norm_of(x, logits.vocab, sane(x[id_of(best_of(x, logits.vocab))]));
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

void start_logprobs(const LogitArgs& logits, const LogprobArgs& args, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(logits.rows);
  launch(logprobs_kernel, {.grid = dim3(rows), .block = dim3(kThreads), .stream = stream}, logits,
         args);
  if (args.top <= kFew) return;
  const auto blocks = static_cast<unsigned>((logits.vocab + kThreads - 1) / kThreads);
  launch(places_kernel, {.grid = dim3(blocks, rows), .block = dim3(kThreads), .stream = stream},
         logits, args);
}

}  // namespace skiff::cuda
