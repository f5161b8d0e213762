// ops/cuda/linear/stream_share.cuh -- stream-K's reduction: a tile that several blocks share is put
// together from their partial sums in the workspace.
//
// Partial sums lie there as the threads hold them, 16 bytes of a thread beside those of the next.
// So they are written and read in whole lines, and the block that adds them up has as many loads in
// flight as its registers hold: it waits for the L2 about once for each slice.
#pragma once
#include "ops/cuda/linear/stream_store.cuh"

namespace skiff::cuda::streamed {

// Tiles of one GEMM may have different numbers of rows, N, of which kMostRows is the largest. A
// slice may be of kTiles neighbouring tiles, which are left one after the other.
template <int N, int kMostRows = N, int kTiles = 1>
struct SharedTile {
  static constexpr int kPieces = N / 8;  // each has a thread's sums of two rows and two features
  static constexpr int kSlicesAtOnce = kPieces >= 16 ? 1 : kPieces == 8 ? 2 : 4;

  const StreamArgs& a;

  // Leaves this block's slice with the others. For the block that arrives last, `sum` becomes the
  // sum of all slices in the order of their chunks, so that the result does not depend on who is
  // last, and true is returned.
  __device__ bool add(float (&sum)[N / 2], const TileSlice& s) {
    leave(sum, s, 0);
    if (!arrives_last(s)) return false;
    total(sum, s, 0);
    return true;
  }

  // The steps of add() for slices of several tiles. Leaves this block's slice of one of them.
  __device__ void leave(const float (&sum)[N / 2], const TileSlice& s, int tile) const {
    float4* mine = partial(s, blockIdx.x, tile);
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      if (has(s, j))
        __stcg(mine + j * kConsumers,
               make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]));
    }
  }
  // Called once the slices of all tiles are left. Returns whether this block is the last that has
  // left its slices. One thread makes the writes of all visible that have met it at the barrier.
  __device__ bool arrives_last(const TileSlice& s) {
    __shared__ unsigned arrived;
    const unsigned others = s.last_block - s.first_block;
    named_sync(3, kConsumers);
    if (threadIdx.x == 0) {
      unsigned* counter = a.counters + s.line * gridDim.x + s.first_block;
      __threadfence();
      arrived = atomicAdd(counter, 1u);
      if (arrived == others) *counter = 0;
      __threadfence();
    }
    named_sync(3, kConsumers);
    return arrived == others;
  }

  // Called by the last block alone: sets `all` to the sum of all slices of a tile.
  __device__ void total(float (&all)[N / 2], const TileSlice& s, int tile) const {
#pragma unroll
    for (float& v : all) v = 0;
    for (int b = s.first_block; b <= s.last_block; b += kSlicesAtOnce) {
      float4 p[kSlicesAtOnce][kPieces] = {};
#pragma unroll
      for (int i = 0; i < kSlicesAtOnce; ++i) {
        const float4* from = partial(s, b + i, tile);
#pragma unroll
        for (int j = 0; j < kPieces; ++j)
          if (b + i <= s.last_block && has(s, j)) p[i][j] = __ldcg(from + j * kConsumers);
      }
#pragma unroll
      for (int i = 0; i < kSlicesAtOnce; ++i) {
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          all[4 * j] += p[i][j].x, all[4 * j + 1] += p[i][j].y;
          all[4 * j + 2] += p[i][j].z, all[4 * j + 3] += p[i][j].w;
        }
      }
    }
  }

 private:
  // Returns whether the thread holds sums of rows that the job has.
  __device__ bool has(const TileSlice& s, int piece) const {
    return 8 * piece + 2 * static_cast<int>(threadIdx.x % 4) < s.job.rows;
  }

  // [kPieces][kConsumers]. Each block has two for each of kTiles on each line: one for a tile that
  // another block begins, and one for a tile that it begins itself.
  __device__ float4* partial(const TileSlice& s, int block, int tile) const {
    const int slice = 2 * (s.line * static_cast<int>(gridDim.x) + block) + (block == s.first_block);
    const int64_t place = slice * kTiles + tile;
    return reinterpret_cast<float4*>(a.partials + place * (kTileRows * kMostRows)) + threadIdx.x;
  }
};

}  // namespace skiff::cuda::streamed
