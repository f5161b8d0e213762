// ops/cuda/mla/rows_known.cuh -- the maxima to which weights and values are relative, over 8-bit
// rows. Positions lie along lanes and warps, so a maximum is looked for only where a score exceeds
// the one that is known by more than kMaxGrowth. The same holds of scales: those of values are
// relative to the largest one known of their group. What is known lies in shared memory; the
// warpgroups of scores, each at a tile of its own, compare with it in the order of the tiles.
#pragma once
#include <cmath>

#include "ops/cuda/float8_half.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/rows_shape.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

// Weights are f16, and 2^kLift at the maximum that is known, so at most 2^(kLift + kMaxGrowth):
// those above 2^-20 of the maximum keep 11 bits, and none errs by more than 2^-31 of it. Scales are
// at most kMaxScale, so values at most 448 times that; where scales of a group differ by no more
// than 2^15, values are exact, whatever the largest is.
constexpr float kLift = 6, kMaxScale = 64;

// Returns whether `yes` holds in any of the threads of the named barrier, at which they meet.
__device__ __forceinline__ bool sync_any(int id, int threads, bool yes) {
  uint32_t any;
  asm volatile(
      "{.reg .pred p, q;\n"
      "setp.ne.u32 q, %3, 0;\n"
      "bar.red.or.pred p, %1, %2, q;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<uint32_t>(yes))
      : "memory");
  return any != 0;
}

// Below all scores, and such that one less another is a number: the maximum of a vector of which no
// position has been seen.
constexpr float kNothing = -0x1p100f;

// What a thread knows of its vectors, 8 * e + 2 * (lane % 4) and the next, and of its group, lane
// % 4.
template <class Tiles>
struct Known {
  static constexpr int kEights = Tiles::kVectors / 8;
  float top[kEights][2];
  float largest;

  __device__ __forceinline__ static int vector(int eight, int i) {
    return eight * 8 + thread_of<Tiles>() % 4 * 2 + i;
  }
  __device__ __forceinline__ void load(const RowsShared<Tiles>& shared, int turn) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      const auto x = *reinterpret_cast<const float2*>(&shared.top[turn][vector(e, 0)]);
      top[e][0] = x.x, top[e][1] = x.y;
    }
    largest = shared.largest[turn][thread_of<Tiles>() % 4];
  }
};

// Forgets what an earlier run left, before anybody reads or raises it.
template <class Tiles>
__device__ __forceinline__ void forget(RowsShared<Tiles>& shared, int turn) {
  const int thread = thread_of<Tiles>();
  if (thread < Tiles::kVectors) shared.top[turn][thread] = kNothing;
  if (thread < kScaleGroups) shared.largest[turn][thread] = 0;
}

// The units of a thread's vectors of eight: scores times these are those in base 2.
template <class Tiles>
__device__ __forceinline__ float2 units(const RowsShared<Tiles>& shared, int eight) {
  return *reinterpret_cast<const float2*>(&shared.unit[Known<Tiles>::vector(eight, 0)]);
}

// Returns whether a score or a scale exceeds what is known by too much. A thread has two rows, lane
// / 4 and lane / 4 + 8, of its vectors, s[4 * e + 2 * row + i], and the scales of its group of
// both.
template <class Tiles>
__device__ __forceinline__ bool exceeds(const Known<Tiles>& known,
                                        const float (&s)[Tiles::kVectors / 2],
                                        const float (&scale)[2], const RowsShared<Tiles>& shared) {
  float growth = -INFINITY;
#pragma unroll
  for (int e = 0; e < Tiles::kVectors / 8; ++e) {
    const float2 unit = units(shared, e);
    growth = fmaxf(growth, fmaf(fmaxf(s[4 * e], s[4 * e + 2]), unit.x, -known.top[e][0]));
    growth = fmaxf(growth, fmaf(fmaxf(s[4 * e + 1], s[4 * e + 3]), unit.y, -known.top[e][1]));
  }
  return growth > kMaxGrowth || fmaxf(scale[0], scale[1]) > known.largest * kMaxScale;
}

// The largest of eight lanes that have the same lane % 4.
__device__ __forceinline__ float most_of_rows(float x) {
#pragma unroll
  for (int mask = 4; mask < 32; mask *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, mask));
  return x;
}

// The largest that warps have found.
template <int n>
__device__ __forceinline__ float most_of_warps(const float (&x)[kWarpsOfGroup][n], int i) {
  return fmaxf(fmaxf(x[0][i], x[1][i]), fmaxf(x[2][i], x[3][i]));
}

// Finds the maxima of a tile, and raises those that are exceeded by too much: keeps the factors for
// earlier sums.
template <class Tiles>
__device__ __forceinline__ void raise(Known<Tiles>& known, const float (&s)[Tiles::kVectors / 2],
                                      const float (&scale)[2], int which, RowsShared<Tiles>& shared,
                                      int place, int turn) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32, group = lane % 4;
#pragma unroll
  for (int e = 0; e < Tiles::kVectors / 8; ++e) {
    const float2 unit = units(shared, e);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float most = most_of_rows(fmaxf(s[4 * e + i], s[4 * e + 2 + i]));
      if (lane < 4)
        shared.top_of_warp[warp][Known<Tiles>::vector(e, i)] = most * (i == 0 ? unit.x : unit.y);
    }
  }
  const float most_of_scales = most_of_rows(fmaxf(scale[0], scale[1]));
  if (lane < 4) shared.largest_of_warp[warp][group] = most_of_scales;
  named_sync(kGroupBarrier + which, kGroupThreads);
#pragma unroll
  for (int e = 0; e < Tiles::kVectors / 8; ++e) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int vector = Known<Tiles>::vector(e, i);
      const float most = most_of_warps(shared.top_of_warp, vector), before = known.top[e][i];
      if (most > before + kMaxGrowth) known.top[e][i] = most;
      if (thread >= 4) continue;
      shared.keep[place][vector] =
          known.top[e][i] == before ? 1.0f : exp2_fast(before - known.top[e][i]);
      shared.top[turn][vector] = known.top[e][i];
    }
  }
  const float most = most_of_warps(shared.largest_of_warp, group), before = known.largest;
  if (most > before * kMaxScale) known.largest = most;
  if (thread >= 4) return;
  shared.keep_group[place][group] = before * inverse_power(known.largest);
  shared.largest[turn][group] = known.largest;
}

}  // namespace skiff::cuda::latent
