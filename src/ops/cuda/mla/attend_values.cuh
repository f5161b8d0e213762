// ops/cuda/mla/attend_values.cuh -- the two warpgroups of the latent attention kernel that multiply
// weights by values: each has half of the rank, 64 x 256 sums in registers.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_shared_columns.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_copy.cuh"
#include "ops/cuda/mla/attend_results.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

// Values past the context may be any bits, and zero times NaN is NaN: clears rows [tail,
// kLatentTile) of a half of a tile.
__device__ inline void clear_tail(uint8_t* values, int half, int tail) {
  for (int i = own_thread(); i < (kLatentTile - tail) * (kHalf / 8); i += kGroupThreads) {
    const int row = tail + i / (kHalf / 8), chunk = i % (kHalf / 8);
    *reinterpret_cast<uint4*>(values + chunk / 8 * kPanelBytes + row * 128 + chunk % 8 * 16) =
        uint4{};
  }
  fence_async();
  named_sync(kOwnBarrier + half, kGroupThreads);
}

// Multiplies the sums by the rows' factors, where a factor of this warp is not 1.
__device__ __forceinline__ void rescale(float (&o)[kHalf / 2], const float* factors) {
  const int thread = own_thread();
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const float keep[2] = {factors[row], factors[row + 8]};
  if (!__any_sync(kAllLanes, keep[0] != 1 || keep[1] != 1)) return;
#pragma unroll
  for (int i = 0; i < kHalf / 2; ++i) o[i] *= keep[i / 2 % 2];
}

// o (+)= weights * values, of one tile.
__device__ __forceinline__ void multiply_values(float (&o)[kHalf / 2], uint32_t weights,
                                                uint32_t values, bool add) {
  const uint64_t a = wgmma_operand(weights), b = wgmma_operand(values, kPanelBytes);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kLatentTile / 16; ++i) {
    wgmma_shared_columns(o, a + i * kWgmmaStep, b + i * (16 * 128 / 16), i > 0 || add);
  }
  wgmma_commit();
  wgmma_wait<0>();
  settle(o);
}

// Attends with one half (0: left) of the values.
template <int kWhich, class Tiles>
__device__ __forceinline__ void attend_values(const LatentPlanArgs& p, const CUtensorMap& map,
                                              Shared<Tiles>& shared, bool any) {
  float o[kHalf / 2];
  Ring<kLeftStages> left;
  Ring<kRightStages> right;
  for (int turn = 0; any; turn = turn + 1 == kTurns ? 0 : turn + 1) {
    int tile = 0;
    bool more;
    do {
      barrier_wait(shared_address(&shared.p_full[right.stage]), right.phase);
      if constexpr (kWhich == 0)
        barrier_wait(shared_address(&shared.left_full[left.stage]), left.phase);
      else
        barrier_wait(shared_address(&shared.right_full[right.stage]), right.phase);
      const Run& run = shared.runs[turn];
      if (tile > 0) rescale(o, shared.keep[right.stage]);
      const int tail = run.item.kv_len - (run.tile + tile) * kLatentTile;
      uint8_t* values =
          kWhich == 0 ? shared.left[left.stage].panels[0] : shared.right[right.stage].panels[0];
      if (tail < kLatentTile) clear_tail(values, kWhich, tail);
      multiply_values(o, shared_address(shared.right[right.stage].rope), shared_address(values),
                      tile > 0);
      more = ++tile < run.tiles;
      __syncwarp();
      const uint32_t left_done = shared_address(&shared.left_done[left.stage]);
      const uint32_t all_done = shared_address(&shared.all_done[right.stage]);
      if (arrives<Tiles>()) {
        if (kWhich == 0) barrier_arrive(left_done);
        barrier_arrive(all_done);
      }
      if (threadIdx.x / 32 % kWarpsOfGroup == 0) {
        if (elected() && shared.cursor[kWhich].at < shared.cursor[kWhich].end) {
          barrier_wait(kWhich == 0 ? left_done : all_done, kWhich == 0 ? left.phase : right.phase);
          load_half<kWhich>(p, map, shared, kWhich == 0 ? left.stage : right.stage);
        }
        __syncwarp();
      }
      left.advance();
      right.advance();
    } while (more);
    any = !shared.runs[turn].last;
    end_run(p, shared.runs[turn], kWhich, turn, shared, o);
  }
}

}  // namespace skiff::cuda::latent
