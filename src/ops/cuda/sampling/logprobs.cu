#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/kernels.h"
#include "ops/cuda/sampling/row.cuh"

namespace skiff::cuda {
namespace {

constexpr int kFew = 32;  // the most top tokens that are found one by one
static_assert(kBlocks * kFew <= kThreads);

struct alignas(16) Shared {
  // Written by each block to all.
  float best[kBlocks];
  double weight[kBlocks];
  uint32_t better[kBlocks];
  uint64_t top[kBlocks * kFew];  // in the first block: the top tokens of each block, or 0
};

// Writes the piece's n best tokens, best first, to the first block. Each thread keeps its own best
// token and searches for its next only when that one has been taken.
template <bool kHeld>
__device__ void write_top(Shared& s, const Piece<kHeld>& piece, int n) {
  const auto next = [&](uint64_t below) {
    uint64_t best = 0;
    piece.each([&](int id, float v) {
      const uint64_t rank = ranked(sane(v), id);
      if (rank < below && rank > best && piece.has(id)) best = rank;
    });
    return best;
  };
  uint64_t mine = next(~0ull);
  for (int i = 0; i < n; ++i) {
    const uint64_t best = reduce(mine, [](uint64_t a, uint64_t b) { return max(a, b); });
    if (threadIdx.x == 0) of_peer(s.top[block_rank() * n + i], 0) = best;
    if (mine == best) mine = next(best);
  }
}

// There is one cluster for each row.
template <bool kHeld>
__global__ void __launch_bounds__(kThreads, 2) logprobs_kernel(LogitArgs logits, LogprobArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  cluster_arrive();
  wait_for_previous();
  let_next_start();
  const int64_t r = cluster_index();
  const float* row = logits.data + r * logits.stride;
  const float mine = sane(row[args.chosen[r]]);
  const Piece<kHeld> piece(row, logits.vocab, reinterpret_cast<float*>(memory + sizeof(Shared)));
  piece.wait();
  const float best = best_of(piece, s.best);
  double weight = 0;  // in f32 the error of V additions would be too large
  uint32_t better = 0;
  piece.each([&](int, float v) {
    weight += static_cast<double>(expf(sane(v) - best));
    better += v > mine;
  });
  broadcast(s.weight, sum(weight));
  broadcast(s.better, sum(better));
  const int n = args.top > kFew ? 0 : args.top;
  write_top(s, piece, n);
  cluster_sync();
  if (block_rank() > 0) return;

  double norm = 0;
  uint32_t rank = 1;
  for (int p = 0; p < blocks_of<kHeld>(); ++p) {
    norm += s.weight[p];
    rank += s.better[p];
  }
  norm = isfinite(best) ? static_cast<double>(best) + log(norm) : static_cast<double>(best);
  const auto logprob = [&](float v) { return static_cast<float>(static_cast<double>(v) - norm); };
  if (threadIdx.x == 0) {
    args.chosen_logprob[r] = logprob(mine);
    args.chosen_rank[r] = static_cast<int32_t>(rank);
  }
  const int t = static_cast<int>(threadIdx.x);
  if (t >= blocks_of<kHeld>() * n || s.top[t] == 0) return;
  int place = 0;
  for (int i = 0; i < blocks_of<kHeld>() * n; ++i) place += s.top[i] > s.top[t];
  if (place >= n) return;
  args.top_ids[r * n + place] = id_of(s.top[t]);
  args.top_logprobs[r * n + place] = logprob(logit_of(s.top[t]));
}

}  // namespace

void start_logprobs(const LogitArgs& logits, const LogprobArgs& args, const SampleMeans& means,
                    cudaStream_t stream) {
  static_assert(sizeof(Shared) <= kAlwaysShared);
  const bool held = means.clusters && sizeof(Shared) + piece_bytes(logits.vocab) <= means.shared;
  const auto kernel = held ? logprobs_kernel<true> : logprobs_kernel<false>;
  if (held) allow_shared(kernel, max_shared());
  const unsigned each = means.clusters ? kBlocks : 1;
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(logits.rows) * each),
          .block = dim3(kThreads),
          .shared = sizeof(Shared) + (held ? piece_bytes(logits.vocab) : 0),
          .stream = stream,
          .cluster = each},
         logits, args);
  if (args.top > kFew) start_places(logits, args, stream);
}

}  // namespace skiff::cuda
