#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/by_histogram.cuh"
#include "ops/cuda/sampling/pass_result.cuh"

namespace skiff::cuda {
namespace {

// Samples one row; `memory` is the block's dynamic shared memory.
template <bool kHeld>
__device__ void draw_row(int32_t* out, const float* row, int vocab, const Draw& draw,
                         unsigned char* memory) {
  Shared& s = *reinterpret_cast<Shared*>(memory);
  cluster_arrive();
  const Piece<kHeld> piece(row, vocab, reinterpret_cast<float*>(memory + sizeof(Shared)));
  clear(s.counts);
  piece.wait();
  const float best = best_of(piece, s.best);
  if (draw.greedy(best)) {
    bool mine = s.best[block_rank()] == best;
    for (int p = 0; p < block_rank(); ++p) mine &= s.best[p] != best;
    if (mine) take_first(out, piece, best);
    return;
  }
  const Line<kHeld> line{piece, Scale(best, draw.temperature, draw.min_p), s, draw.top_k > 0};
  draw_by_histogram(out, line, draw);
}

// There is a cluster for each row, or a block on devices without clusters.
template <bool kHeld>
__global__ void __launch_bounds__(kThreads, 2)
    histogram_kernel(int32_t* out_ids, LogitArgs logits, DrawArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  wait_for_previous();
  let_next_start();
  const int64_t r = cluster_index();
  draw_row<kHeld>(out_ids + r, logits.data + r * logits.stride, logits.vocab, Draw(args, r),
                  memory);
}

// The rows whose token has not been chosen yet are divided among the clusters.
template <bool kHeld>
__global__ void __launch_bounds__(kThreads, 2)
    missed_kernel(int32_t* out_ids, LogitArgs logits, DrawArgs args, const PassResult* results) {
  extern __shared__ __align__(16) unsigned char memory[];
  wait_for_previous();
  let_next_start();
  const int step = static_cast<int>(gridDim.x) / kBlocks;
  for (int r = cluster_index(); r < logits.rows; r += step) {
    if (results[r].done) continue;
    draw_row<kHeld>(out_ids + r, logits.data + r * logits.stride, logits.vocab, Draw(args, r),
                    memory);
    cluster_sync();  // no block reads a peer's memory any more
  }
}

static_assert(sizeof(Shared) <= kAlwaysShared);

size_t histogram_bytes(int vocab) { return sizeof(Shared) + piece_bytes(vocab); }

}  // namespace

void start_histograms(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                      const SampleMeans& means, cudaStream_t stream) {
  const bool held = means.clusters && histogram_bytes(logits.vocab) <= means.shared;
  const auto kernel = held ? histogram_kernel<true> : histogram_kernel<false>;
  if (held) allow_shared(kernel, max_shared());
  const unsigned each = means.clusters ? kBlocks : 1;
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(logits.rows) * each),
          .block = dim3(kThreads),
          .shared = held ? histogram_bytes(logits.vocab) : sizeof(Shared),
          .stream = stream,
          .cluster = each},
         out_ids, logits, draw);
}

void start_missed(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  const PassResult* results, const SampleMeans& means, cudaStream_t stream) {
  const bool held = histogram_bytes(logits.vocab) <= means.shared;
  const auto kernel = held ? missed_kernel<true> : missed_kernel<false>;
  if (held) allow_shared(kernel, max_shared());
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(std::min(logits.rows, means.at_once)) * kBlocks),
          .block = dim3(kThreads),
          .shared = held ? histogram_bytes(logits.vocab) : sizeof(Shared),
          .stream = stream,
          .cluster = kBlocks},
         out_ids, logits, draw, results);
}

}  // namespace skiff::cuda
