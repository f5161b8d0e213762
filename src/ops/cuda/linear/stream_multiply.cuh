// ops/cuda/linear/stream_multiply.cuh -- the streamed GEMM's main loop: wgmma over the chunks of a
// slice of a tile, or of each piece of it.
#pragma once
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/linear/stream_walk.cuh"

namespace skiff::cuda::streamed {

// sum = the slice's 128 weight rows times M rows of x, of which the job may have fewer. A warpgroup
// has 64 of the weight rows; wgmma.cuh says which thread holds which sum.
template <int M, int kSums, class Ring>
__device__ void multiply(float (&sum)[kSums], const Ring& ring, const TileSlice& s,
                         RingTurn<Ring::kStages>& turn) {
  float(&part)[M / 2] = reinterpret_cast<float(&)[M / 2]>(sum);
  const int group = threadIdx.x / 128;
  int before = -1;  // the stage that wgmmas still in flight read
  for (int c = s.begin; c < s.end; ++c) {
    barrier_wait(ring.full + 8 * turn.stage, turn.parity);
    const uint64_t w = wgmma_operand(ring.weights(turn.stage) + group * (Ring::kWeightBytes / 2));
    const uint64_t x = wgmma_operand(ring.rows(turn.stage));
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

// The sums so far of a tile that is summed in pieces. They lie in the block's part of the
// workspace, because registers are short; each thread reads only what it wrote.
class SumsSoFar {
 public:
  __device__ explicit SumsSoFar(const StreamArgs& a)
      : at_(reinterpret_cast<float4*>(a.partials + int64_t{blockIdx.x} * kBlockPartials) +
            threadIdx.x) {}
  // sum += the sums so far.
  template <int n>
  __device__ void add_to(float (&sum)[n]) const {
#pragma unroll
    for (int i = 0; i < n; i += 4) {
      const float4 v = __ldcg(at_ + i / 4 * kConsumers);
      sum[i] = v.x + sum[i], sum[i + 1] = v.y + sum[i + 1];
      sum[i + 2] = v.z + sum[i + 2], sum[i + 3] = v.w + sum[i + 3];
    }
  }
  template <int n>
  __device__ void keep(const float (&sum)[n]) const {
#pragma unroll
    for (int i = 0; i < n; i += 4)
      __stcg(at_ + i / 4 * kConsumers, make_float4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
  }

 private:
  float4* at_;
};

// multiply() for a whole tile, with the additions in the order in which stream-K makes them when
// several blocks share the tile: each piece from zero, then the pieces in the order of their chunks
// (SharedTile::total).
template <int M, int kSums, class Ring>
__device__ void multiply_pieces(float (&sum)[kSums], const StreamArgs& a, const Ring& ring,
                                const TileSlice& s, RingTurn<Ring::kStages>& turn) {
  float(&part)[M / 2] = reinterpret_cast<float(&)[M / 2]>(sum);
  const SumsSoFar so_far(a);
  TileSlice piece = s;
  for (int begin = 0; begin < a.chunks; begin = piece.end) {
    piece.begin = begin;
    piece.end = end_of_piece(s.tile, begin, a.chunks, a.cut);
    multiply<M>(sum, ring, piece, turn);
    if (piece.end == a.chunks && begin == 0) return;
    settle(part);
    if (begin > 0) {
      so_far.add_to(part);
    } else {
#pragma unroll
      for (float& x : part) x = 0.0f + x;  // SharedTile::total begins with zero: no -0 remains
    }
    if (piece.end < a.chunks) so_far.keep(part);
  }
}

}  // namespace skiff::cuda::streamed
