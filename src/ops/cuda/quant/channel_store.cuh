// ops/cuda/quant/channel_store.cuh -- the sums of a cluster's blocks come together, are scaled and
// stored.
#pragma once
#include "ops/cuda/activation.cuh"
#include "ops/cuda/hopper/cluster.cuh"
#include "ops/cuda/quant/channel_args.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::channels {

// Sums lie in pieces of 8 rows of x: a thread has four of each, of two weight rows and two rows of
// x. A block of the cluster finishes every splits-th piece.
template <class Ring, bool kGated>
class ChannelStore {
 public:
  static constexpr int kPieces = Ring::kRows / 8;
  static constexpr int kFeatures = kGated ? kTileRows / 2 : kTileRows;  // columns of out
  static constexpr int kPitch = kFeatures * 2 + 16;  // bytes, against bank conflicts
  using Sums = float[Ring::kRows / 2];

  // `memory`: the ring's, when nothing is loaded any more. `x_scales`: those of the part's rows.
  __device__ ChannelStore(const ChannelArgs& a, const ChannelPart& part, char* memory,
                          const float* x_scales)
      : a_(a),
        part_(part),
        partials_(reinterpret_cast<float4*>(memory) + threadIdx.x),
        lines_(memory + (a.splits > 1 ? kPieces * kConsumers * sizeof(float4) : 0)),
        x_scales_(x_scales),
        lane_(threadIdx.x % 32),
        column_(static_cast<int>(threadIdx.x / 32) * (kGated ? 8 : 16) + lane_ / 4),
        feature_(part.tile * kFeatures + column_) {}

  // Loads what does not depend on kernels before this one.
  __device__ void load_scales() {
    const int f = kGated ? min(feature_, a_.features - 1) : feature_;
    scale_[0] = __ldg(a_.scales + f);
    scale_[1] = __ldg(a_.scales + f + (kGated ? a_.features : 8));
  }

  // All threads that multiply, when all of them have.
  __device__ void store(const Sums& sum) {
    if (a_.splits == 1) {
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        if (8 * j >= part_.rows) break;
        finish(piece_of(sum, j), j, j);
      }
      return copy_lines();
    }
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      if (8 * j >= part_.rows) break;
      partials_[j * kConsumers] = piece_of(sum, j);
    }
    cluster_sync();
    if (a_.splits == 2)
      finish_shared<2>();
    else
      finish_shared<4>();
    cluster_arrive();
    copy_lines();
    cluster_wait();  // nobody leaves before all have read its sums
  }

 private:
  static __device__ __forceinline__ float4 piece_of(const Sums& sum, int j) {
    return make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
  }

  // Adds up the blocks' sums of this block's pieces in the order of their chunks, with loads of
  // kAtOnce pieces under way at a time.
  template <int kSplits>
  __device__ __forceinline__ void finish_shared() {
    constexpr int kOwn = (kPieces + kSplits - 1) / kSplits, kAtOnce = kOwn < 4 ? kOwn : 4;
#pragma unroll 1
    for (int own = 0; own < kOwn; own += kAtOnce) {
      float4 sums[kAtOnce][kSplits] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int j = part_.rank + kSplits * (own + i);
#pragma unroll
        for (int r = 0; r < kSplits; ++r)
          if (8 * j < part_.rows) sums[i][r] = of_peer(partials_[j * kConsumers], r);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int j = part_.rank + kSplits * (own + i);
        if (8 * j >= part_.rows) break;
        float4 all = sums[i][0];
#pragma unroll
        for (int r = 1; r < kSplits; ++r) {
          all.x += sums[i][r].x, all.y += sums[i][r].y;
          all.z += sums[i][r].z, all.w += sums[i][r].w;
        }
        finish(all, j, own + i);
      }
    }
  }

  // Scales the sums of piece j and stores them, or stages them as the block's piece `own`.
  __device__ __forceinline__ void finish(const float4& sum, int j, int own) {
    const int first = 2 * (lane_ % 4);
    const float upper[2] = {sum.x, sum.y}, lower[2] = {sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float x = x_scales_[8 * j + first + i];
      const float one = upper[i] * (scale_[0] * x), other = lower[i] * (scale_[1] * x);
      const int row = part_.first + 8 * j + first + i, line = 8 * own + first + i;
      if constexpr (kGated) {
        put_one(row, line, 0, activate(one, a_.act) * other);
      } else {
        put_one(row, line, 0, one + bias(feature_));
        put_one(row, line, 8, other + bias(feature_ + 8));
      }
    }
  }
  __device__ float bias(int f) const { return a_.bias && f < a_.features ? a_.bias[f] : 0.0f; }

  // Column feature_ + further of a row of out, which is staged as line `line`.
  __device__ __forceinline__ void put_one(int row, int line, int further, float value) const {
    if (a_.out_lines) {
      auto* to = reinterpret_cast<__nv_bfloat16*>(lines_ + line * kPitch);
      put(to + column_ + further, value);
    } else if (row < a_.rows && feature_ + further < a_.features) {
      put(a_.out, a_.out_f32, row * a_.out_stride + feature_ + further, value);
    }
  }

  __device__ void copy_lines() const {
    if (!a_.out_lines) return;
    named_sync(1, kConsumers);
    constexpr int kEach = 8, kOfLine = kFeatures / kEach;
    const int pieces = (part_.rows + 7) / 8;
    const int own = (pieces - part_.rank + a_.splits - 1) / a_.splits;
    const int first = part_.tile * kFeatures;
    for (int i = threadIdx.x; i < own * 8 * kOfLine; i += kConsumers) {
      const int line = i / kOfLine, f = i % kOfLine * kEach;
      const int row = 8 * (part_.rank + a_.splits * (line / 8)) + line % 8;
      if (row >= part_.rows || first + f >= a_.features) continue;
      auto* to = static_cast<__nv_bfloat16*>(a_.out) + (part_.first + row) * a_.out_stride + first;
      *reinterpret_cast<uint4*>(to + f) =
          *reinterpret_cast<const uint4*>(lines_ + line * kPitch + f * 2);
    }
  }

  const ChannelArgs& a_;
  const ChannelPart& part_;
  float4* const partials_;
  char* const lines_;
  const float* const x_scales_;
  const int lane_, column_, feature_;  // the column of the thread's first weight row in the tile
  float scale_[2];
};

}  // namespace skiff::cuda::channels
