// ops/cuda/linear/stream_multiply.cuh -- the streamed GEMM's main loop: wgmma over the chunks of a
// slice of a tile.
#pragma once
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/linear/stream_walk.cuh"

namespace skiff::cuda::streamed {

// sum = the slice's 128 weight rows times the first M of N rows of x. A warpgroup has 64 of the
// weight rows; wgmma.cuh says which thread holds which sum.
template <int N, int M>
__device__ void multiply(float (&sum)[N / 2], const StageRing<N>& ring, const TileSlice& s,
                         RingTurn<StageRing<N>::kStages>& turn) {
  float(&part)[M / 2] = reinterpret_cast<float(&)[M / 2]>(sum);
  const int group = threadIdx.x / 128;
  int before = -1;  // the stage that wgmmas still in flight read
  for (int c = s.begin; c < s.end; ++c) {
    barrier_wait(ring.full + 8 * turn.stage, turn.parity);
    const uint32_t at = ring.weights(turn.stage);
    const uint64_t w = wgmma_operand(at + group * (StageRing<N>::kWeightBytes / 2));
    const uint64_t x = wgmma_operand(at + StageRing<N>::kWeightBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      wgmma<M>(part, w + k * kWgmmaStep, x + k * kWgmmaStep, c > s.begin || k > 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (before >= 0 && threadIdx.x % 128 == 0) barrier_arrive(ring.empty + 8 * before);
    before = turn.stage;
    turn.advance();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 128 == 0) barrier_arrive(ring.empty + 8 * before);
}

}  // namespace skiff::cuda::streamed
