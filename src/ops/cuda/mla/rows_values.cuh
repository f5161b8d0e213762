// ops/cuda/mla/rows_values.cuh -- the two warpgroups that multiply values by weights, over 8-bit
// rows: each has half of the rank. Values are the operand in registers, with columns as its rows: a
// transposing load gives a thread two positions of two neighbouring columns, which become a pair of
// positions of each column. Values and weights are f16, relative to the largest scale and to the
// largest score that are known (rows_known.cuh).
#pragma once
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_registers_half.cuh"
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/rows_codes.cuh"
#include "ops/cuda/mla/rows_results.cuh"
#include "ops/cuda/mla/rows_shape.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

// Multiplies earlier sums by the factors of their vectors and of their groups.
template <class Tiles>
__device__ __forceinline__ void rescale(ColumnSums<Tiles>& o, const float* of_vector,
                                        const float* of_group) {
  const int lane = thread_of<Tiles>() % 32;
#pragma unroll
  for (int j = 0; j < Tiles::kVectors / 8; ++j) {
    const auto keep = *reinterpret_cast<const float2*>(of_vector + j * 8 + lane % 4 * 2);
#pragma unroll
    for (int block = 0; block < kHalfPanels; ++block) {
      const float x = keep.x * of_group[block / 2], y = keep.y * of_group[block / 2];
      o[block][4 * j] *= x, o[block][4 * j + 1] *= y;
      o[block][4 * j + 2] *= x, o[block][4 * j + 3] *= y;
    }
  }
}

// Threads of a vector, neighbours, each of which adds weights of a part of the positions. The two
// warpgroups have half of the positions each.
template <class Tiles>
constexpr int kSharers = kGroupThreads / Tiles::kVectors;

template <class Tiles>
__device__ __forceinline__ float sum_weights(const uint8_t* weights, int which) {
  constexpr int kParts = kLatentTile / 2 / 4 / kSharers<Tiles>;  // a part is four positions
  const int thread = thread_of<Tiles>(), vector = thread / kSharers<Tiles>;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int part = which * 8 + thread % kSharers<Tiles> * kParts + i;
    const auto x =
        *reinterpret_cast<const uint2*>(weights + swizzled(vector, part / 2) + part % 2 * 8);
    total += sum_of_half(x.x) + sum_of_half(x.y);
  }
  return total;
}

// Loads 16 columns of 32 positions for each load; raw[i / 4][i % 4] has those from 8 * i on.
template <int kLoads>
__device__ __forceinline__ void load_positions(uint32_t (&raw)[kLoads][4], uint32_t at) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i)
    load_matrices_transposed(raw[i], at + i * (kLatentTile / 2) * kRowBytes);
}

// Makes the operands of them. scales: those of the pairs of positions that a thread has.
template <int kLoads>
__device__ __forceinline__ void widen_positions(uint32_t (&a)[2 * kLoads][4],
                                                const uint32_t (&raw)[kLoads][4],
                                                const uint4* scales) {
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const uint4 x = scales[load];
    const uint32_t scale[] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = __byte_perm(raw[load][i], 0, 0x3120);
      a[load * 2 + i / 2][i % 2 * 2] = mul_half(first_codes(word), scale[i]);
      a[load * 2 + i / 2][i % 2 * 2 + 1] = mul_half(last_codes(word), scale[i]);
    }
  }
}

// o (+)= values * weights, of this half of a tile. Two sets of operands take turns. `meanwhile` is
// called while the last products are computed.
template <class Tiles, class Meanwhile>
__device__ __forceinline__ void multiply_values(ColumnSums<Tiles>& o, int which,
                                                RowsShared<Tiles>& shared, int rows, int stage,
                                                bool add, const Meanwhile& meanwhile) {
  constexpr int kLoads = Tiles::kLoads, kSteps = Tiles::kSteps;
  constexpr int kSetsOfBlock = 2 / kLoads, kSets = kHalfPanels * kSetsOfBlock;
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  const uint32_t at = shared_address(shared.rows[rows]) +
                      static_cast<uint32_t>(lane * kRowBytes + which * kHalf + warp * 16);
  const auto place = [&](int set) {
    return at + static_cast<uint32_t>(set / kSetsOfBlock * 64 +
                                      set % kSetsOfBlock * (kLatentTile / 2) * kRowBytes);
  };
  const uint64_t weights = wgmma_operand(shared_address(shared.p[stage]));
  uint32_t raw[kLoads][4], a[2][kSteps][4];
  load_positions<kLoads>(raw, place(0));
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    uint32_t(&mine)[kSteps][4] = a[set % 2];
    const int block = set / kSetsOfBlock, part = set % kSetsOfBlock;
    const uint32_t* scales =
        shared.scales[stage][which * kGroupsOfHalf + block / 2][lane % 4] + part * 4;
    if (set > 1) {
      wgmma_wait<1>();
      settle(mine);
    }
    widen_positions<kLoads>(mine, raw, reinterpret_cast<const uint4*>(scales));
    if (set + 1 < kSets) load_positions<kLoads>(raw, place(set + 1));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int step = part * kSteps + i;
      wgmma_held_half<Tiles::kVectors>(o[block], mine[i], weights + step * kWgmmaStep,
                                       step > 0 || add);
    }
    wgmma_commit();
  }
  warp_arrives<Tiles>(shared.done[rows]);
  meanwhile();
  wgmma_wait<0>();
#pragma unroll
  for (int block = 0; block < kHalfPanels; ++block) settle(o[block]);
  settle(a[0]);
  settle(a[1]);
}

// The tiles of a block. The first warp of the left half asks for tiles of rows.
template <class Tiles>
__device__ __forceinline__ void rows_values(const LatentPlanArgs& p, int which,
                                            RowsShared<Tiles>& shared, bool any) {
  ColumnSums<Tiles> o;
  Ring<Tiles::kStages> rows;
  Ring<Tiles::kPlaces> stage;
  int place = 0;
  // Asks for the next tile of rows in the place of this one, which all have read, or nearly.
  const auto refill = [&] {
    if (elected() && shared.cursor.at < shared.cursor.end) {
      barrier_wait(shared_address(&shared.done[rows.stage]), rows.phase);
      load_tile(p, shared, rows.stage);
    }
    __syncwarp();
  };
  for (int turn = 0; any; turn = turn + 1 == Tiles::kTurns ? 0 : turn + 1) {
    int tile = 0;
    float sum = 0;
    bool more;
    do {
      barrier_wait(shared_address(&shared.p_full[stage.stage]), stage.phase);
      barrier_wait(shared_address(&shared.full[rows.stage]), rows.phase);
      if (tile > 0 && shared.grown[stage.stage]) {
        rescale<Tiles>(o, shared.keep[stage.stage],
                       shared.keep_group[stage.stage] + which * kGroupsOfHalf);
        sum *= shared.keep[stage.stage][thread_of<Tiles>() / kSharers<Tiles>];
      }
      sum += sum_weights<Tiles>(shared.p[stage.stage], which);
      multiply_values(o, which, shared, rows.stage, stage.stage, tile > 0, [&] {
        if (which == 0 && threadIdx.x / 32 % kWarpsOfGroup == 0) refill();
      });
      more = ++tile < shared.runs[turn].tiles;
      warp_arrives<Tiles>(shared.p_done[stage.stage]);
      rows.advance();
      stage.advance();
    } while (more);
#pragma unroll
    for (int mask = 1; mask < kSharers<Tiles>; mask *= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, mask);
    // Two places take turns: a warp may be at the next run's end while others read these.
    shared.sum[place][which][thread_of<Tiles>() / kSharers<Tiles>] = sum;
    named_sync(kBothValuesBarrier, 2 * kGroupThreads);
    any = !shared.runs[turn].last;
    end_rows_run(p, shared.runs[turn], which, turn, place, shared, o);
    place ^= 1;
  }
}

}  // namespace skiff::cuda::latent
