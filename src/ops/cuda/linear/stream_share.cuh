// ops/cuda/linear/stream_share.cuh -- stream-K's reduction: a tile that several blocks share is put
// together from their partial sums in the workspace.
#pragma once
#include "ops/cuda/linear/stream_store.cuh"

namespace skiff::cuda::streamed {

template <int N, bool kGated>
struct SharedTile {
  using Store = Epilogue<N, kGated>;
  static constexpr int kFeatures = Store::kFeatures;

  const StreamArgs& a;
  Store store;

  // Adds this block's slice. The block that arrives last adds up all slices in the order of their
  // chunks, so that the result does not depend on who is last.
  __device__ void add(const float (&sum)[N / 2], const TileSlice& s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* mine = partial(s, blockIdx.x) + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      if (8 * j >= s.job.rows) break;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = 8 * j + 2 * (lane % 4) + i;
        if (n >= s.job.rows) continue;
        __stcg(mine + n * kTileRows, sum[4 * j + i]);
        __stcg(mine + n * kTileRows + 8, sum[4 * j + 2 + i]);
      }
    }
    __threadfence();
    named_sync(3, kConsumers);
    __shared__ unsigned arrived;
    const unsigned others = s.last_block - s.first_block;
    if (threadIdx.x == 0) {
      unsigned* counter = a.counters + s.line * gridDim.x + s.first_block;
      arrived = atomicAdd(counter, 1u);
      if (arrived == others) *counter = 0;
    }
    named_sync(3, kConsumers);
    if (arrived != others) return;
    __threadfence();
    for (int i = threadIdx.x; i < s.job.rows * (kFeatures / 4); i += kConsumers)
      finish(s, i / (kFeatures / 4), i % (kFeatures / 4) * 4);
  }

 private:
  // [N][kTileRows]. Each block has two on each line: one for a tile that another block begins,
  // and one for a tile that it begins itself.
  __device__ float* partial(const TileSlice& s, int block) {
    const int place = 2 * (s.line * static_cast<int>(gridDim.x) + block) + (block == s.first_block);
    return a.partials + int64_t{place} * (kTileRows * N);
  }

  // The sum over all blocks of four neighbouring partial sums.
  __device__ float4 total(const TileSlice& s, int at) {
    constexpr int kAtOnce = 4;
    float4 v = {0, 0, 0, 0};
    for (int b = s.first_block; b <= s.last_block; b += kAtOnce) {
      float4 p[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (b + i <= s.last_block)
          p[i] = __ldcg(reinterpret_cast<const float4*>(partial(s, b + i) + at));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        v = {v.x + p[i].x, v.y + p[i].y, v.z + p[i].z, v.w + p[i].w};
    }
    return v;
  }

  // Four neighbouring outputs of a row.
  __device__ void finish(const TileSlice& s, int n, int f) {
    float value[4];
    if constexpr (kGated) {
      const int at = n * kTileRows + f / 8 * 16 + f % 8;
      const float4 gate = total(s, at), up = total(s, at + 8);
      const float g[4] = {gate.x, gate.y, gate.z, gate.w}, u[4] = {up.x, up.y, up.z, up.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = activate(g[i], a.act) * u[i];
    } else {
      const float4 v = total(s, n * kTileRows + f);
      value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int feature = s.tile * kFeatures + f + i;
      if (feature >= a.features) continue;
      if constexpr (!kGated) value[i] += store.bias(feature);
      store.write(s.job.first + n, feature, value[i]);
    }
  }
};

}  // namespace skiff::cuda::streamed
