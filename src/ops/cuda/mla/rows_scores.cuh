// ops/cuda/mla/rows_scores.cuh -- the two warpgroups that multiply keys by queries, over 8-bit
// rows: they take tiles in turns, for a tile's scores and weights depend on each other step by
// step, and two tiles fill the waits of one. Keys are the operand in registers: a warp has 16
// positions of a tile, converted as they are multiplied. Codes are exact in f16, and so are their
// products' sums as far as f32 is. Scales, which differ from row to row, multiply sums: those of
// one group before the next is added.
#pragma once
#include "ops/cuda/float8_half.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_registers.cuh"
#include "ops/cuda/hopper/wgmma_registers_half.cuh"
#include "ops/cuda/mla/rows_shape.cuh"
#include "ops/cuda/mma.cuh"

namespace skiff::cuda::latent {

// Returns where the scale of a group lies of a thread's row of a tile, lane / 4 of the warp's 16 or
// 8 further.
template <class Tiles>
__device__ __forceinline__ const float* scale_at(const uint8_t* tile, int group, int half) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  const uint8_t* row = tile + (warp * 16 + half * 8 + lane / 4) * kRowBytes + kScalesAt;
  return reinterpret_cast<const float*>(row) + group;
}

// Bytes past the context are any, and a code may be NaN: clears the codes and scales of rows from
// `positions` on, before anybody reads them as values. A warp clears the rows that it reads.
template <class Tiles>
__device__ __forceinline__ void clear_rows(uint8_t* tile, int positions) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  for (int row = max(positions, warp * 16); row < warp * 16 + 16; ++row) {
    reinterpret_cast<uint4*>(tile + row * kRowBytes)[lane] = uint4{};
    if (lane == 0) *reinterpret_cast<uint4*>(tile + row * kRowBytes + kScalesAt) = uint4{};
  }
  __syncwarp();
}

// Multiplies the sums of rows lane / 4 and lane / 4 + 8.
template <int n>
__device__ __forceinline__ void scale_rows(float (&s)[n], float first, float second) {
#pragma unroll
  for (int i = 0; i < n; ++i) s[i] *= i / 2 % 2 == 0 ? first : second;
}

// Loads columns of a warp's 16 rows, as bytes: 32 with each load, which are two steps of wgmma.
template <int kLoads>
__device__ __forceinline__ void load_columns(uint32_t (&to)[kLoads][4], uint32_t at) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) load_matrices(to[i], at + i * 32);
}

// Makes the operand of a step of half of a load.
__device__ __forceinline__ void widen_columns(uint32_t (&a)[4], uint32_t upper, uint32_t lower) {
  a[0] = first_codes(upper), a[1] = first_codes(lower);
  a[2] = last_codes(upper), a[3] = last_codes(lower);
}

// s = s * scale of the last group + rotated keys * rotated queries, through the operands of the set
// before the last, once the last is added.
template <class Tiles, int kSteps>
__device__ __forceinline__ void multiply_rotated(float (&s)[Tiles::kVectors / 2],
                                                 const float (&scale)[2], uint64_t q, uint32_t at,
                                                 uint32_t (&a)[2][kSteps][4]) {
  constexpr int kAtOnce = kSteps < 2 ? kSteps : 2, kParts = 4 / kAtOnce;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    auto& keys = reinterpret_cast<uint32_t(&)[kAtOnce][4]>(a[part % 2]);
    if (part > 1) {
      wgmma_wait<1>();
      settle(keys);
    }
    load_columns<kAtOnce>(keys, at + part * kAtOnce * 32);
    if (part == 0) {
      wgmma_wait<0>();
      settle(s);
      settle(a[1]);
      scale_rows(s, scale[0], scale[1]);
    }
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kAtOnce; ++step)
      wgmma_held<Tiles::kVectors>(s, keys[step], q + (part * kAtOnce + step) * kWgmmaStep, 1);
    wgmma_commit();
  }
  wgmma_wait<0>();
  settle(s);
  settle(a[0]);
  settle(a[1]);
}

// s = keys * queries, of a tile: the four groups of codes, then the rotated keys, which are bf16.
// Two sets of operands take turns, so that one is converted while the tensor cores read the other.
template <class Tiles>
__device__ __forceinline__ void multiply_rows(float (&s)[Tiles::kVectors / 2],
                                              RowsShared<Tiles>& shared, int stage) {
  constexpr int kSteps = Tiles::kScoresSteps, kLoads = (kSteps + 1) / 2;
  constexpr int kSetsOfGroup = 128 / (16 * kSteps), kSets = kScaleGroups * kSetsOfGroup;
  constexpr uint64_t kPanel = Tiles::kVectors * 128 / 16;
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  const uint32_t at = shared_address(shared.rows[stage]) +
                      static_cast<uint32_t>((warp * 16 + lane % 16) * kRowBytes + lane / 16 * 16);
  const uint64_t q = wgmma_operand(shared_address(shared.q));
  const auto scale = [&](int group, int half) {
    return *scale_at<Tiles>(shared.rows[stage], group, half);
  };
  uint32_t raw[kLoads][4], a[2][kSteps][4];
  load_columns<kLoads>(raw, at);
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    uint32_t(&mine)[kSteps][4] = a[set % 2];
    const int group = set / kSetsOfGroup;
    if (set > 1) {
      wgmma_wait<1>();
      settle(mine);
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int half = (set * kSteps + i) % 2 * 2;
      widen_columns(mine[i], raw[i / 2][half], raw[i / 2][half + 1]);
    }
    if (set + 1 < kSets && (set + 1) * kSteps % 2 == 0)
      load_columns<kLoads>(raw, at + (set + 1) * kSteps * 16);
    if (set > 0 && set % kSetsOfGroup == 0) {
      const float upper = scale(group - 1, 0) * inverse_power(scale(group, 0));
      const float lower = scale(group - 1, 1) * inverse_power(scale(group, 1));
      wgmma_wait<0>();
      settle(s);
      settle(a[(set + 1) % 2]);
      scale_rows(s, upper, lower);
    }
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int step = set * kSteps + i;
      wgmma_held_half<Tiles::kVectors>(s, mine[i], q + step / 4 * kPanel + step % 4 * kWgmmaStep,
                                       step > 0);
    }
    wgmma_commit();
  }
  wgmma_wait<1>();
  settle(a[0]);
  const float last[2] = {scale(kScaleGroups - 1, 0), scale(kScaleGroups - 1, 1)};
  multiply_rotated<Tiles>(s, last, q + (kPanels - 1) * kPanel, at + kRopeAt, a);
}

}  // namespace skiff::cuda::latent
