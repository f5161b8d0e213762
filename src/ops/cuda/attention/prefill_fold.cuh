// ops/cuda/attention/prefill_fold.cuh -- the prefill kernel's results of pieces that have ended,
// where a plan has pieces (plan.h). Registers hold the piece at hand only. The fold of those before
// lies in shared memory; that has no room for heads of 256, whose fold lies in global memory (the
// L2), in scratch that a warpgroup takes as long as it needs it.
#pragma once
#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/key_tiles.cuh"
#include "ops/cuda/hopper/barrier.cuh"

namespace skiff::cuda::prefill {

constexpr int kGroupThreads = 128;
constexpr int kGroups = FoldScratch::kGroups;  // warpgroups that multiply

// What shared memory has for the folds of both warpgroups.
template <int kDim, bool kPieces>
struct FoldRoom {
  __device__ float4* group(int) { return nullptr; }
};
template <int kDim>
requires(kDim < 256) struct FoldRoom<kDim, true> {
  float4 values[kGroups][kDim / 8][kGroupThreads];
  __device__ float4* group(int i) { return values[i][0]; }
};
template <>
struct FoldRoom<256, true> {
  int scratch[kGroups];
};

// Returns scratch that no warpgroup on the device has. There is enough for all that can run at the
// same time.
__device__ inline int take_scratch(const FoldScratch& from, int group) {
  uint32_t processor;
  asm("mov.u32 %0, %%smid;" : "=r"(processor));
  int slot = (2 * static_cast<int>(processor) + group) % from.count;
  while (atomicCAS(from.taken + slot, 0, 1) != 0) slot = slot + 1 < from.count ? slot + 1 : 0;
  __threadfence();
  return slot;
}

// The fold of a thread's part of a warpgroup's rows.
template <int kDim>
class Folded {
 public:
  // `place` is the warpgroup's.
  __device__ explicit Folded(float4* place) : at_(place + threadIdx.x % kGroupThreads) {}

  // Adds a piece; `o` is left as it is.
  __device__ __forceinline__ void add(const float (&o)[kDim / 2], const Total (&next)[2]) {
    if (!any_) {
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i)
        put(i, make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]));
      total_[0] = next[0], total_[1] = next[1];
      any_ = true;
      return;
    }
    const FoldScale a(total_[0].top, next[0].top), b(total_[1].top, next[1].top);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const float4 x = get(i);
      put(i, make_float4(a.fold(x.x, o[4 * i]), a.fold(x.y, o[4 * i + 1]),
                         b.fold(x.z, o[4 * i + 2]), b.fold(x.w, o[4 * i + 3])));
    }
    total_[0] = a.fold(total_[0], next[0]), total_[1] = b.fold(total_[1], next[1]);
  }

  // Makes `o` and `last`, the results of the last piece, those of all pieces.
  __device__ __forceinline__ void finish(float (&o)[kDim / 2], Total (&last)[2]) {
    if (!any_) return;
    const FoldScale a(total_[0].top, last[0].top), b(total_[1].top, last[1].top);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const float4 x = get(i);
      o[4 * i] = a.fold(x.x, o[4 * i]), o[4 * i + 1] = a.fold(x.y, o[4 * i + 1]);
      o[4 * i + 2] = b.fold(x.z, o[4 * i + 2]), o[4 * i + 3] = b.fold(x.w, o[4 * i + 3]);
    }
    last[0] = a.fold(total_[0], last[0]), last[1] = b.fold(total_[1], last[1]);
  }

 private:
  static constexpr bool kGlobal = kDim == 256;
  __device__ __forceinline__ float4 get(int i) const {
    if constexpr (kGlobal) return __ldcg(at_ + i * kGroupThreads);
    return at_[i * kGroupThreads];
  }
  __device__ __forceinline__ void put(int i, const float4& x) const {
    if constexpr (kGlobal)
      __stcg(at_ + i * kGroupThreads, x);
    else
      at_[i * kGroupThreads] = x;
  }

  float4* at_;
  Total total_[2];
  bool any_ = false;
};

}  // namespace skiff::cuda::prefill
